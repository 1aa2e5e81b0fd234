// Goal: how long a rank waits for one that is missing, and for others once enough have come,
// follows the median of its own steps, not one that took long.
// Method: steps of known length.
#include "core/partial/pace.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

TEST(PaceTest, TenTimesTheMedianButNotLessThanASecond) {
  Pace pace;
  EXPECT_EQ(pace.MaxWait(), Pace::kUnknown);
  Time now = kSecond;
  const auto step = [&](Time length) {
    pace.OnBegin(now);
    pace.OnEnd(now += length);
    now += kSecond;  // of waiting, which does not count
  };
  for (int i = 0; i < 4; ++i) step(300 * kMillisecond);
  EXPECT_EQ(pace.MaxWait(), Pace::kUnknown);
  step(3600 * kSecond);
  EXPECT_EQ(pace.MaxWait(), 3 * kSecond);
  for (int i = 0; i < 31; ++i) step(kMillisecond);
  EXPECT_EQ(pace.MaxWait(), Pace::kLeast);
}

TEST(PaceTest, GraceIsATwentiethOfTheMedian) {
  Pace pace;
  Time now = kSecond;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pace.Grace(), 0);
    pace.OnBegin(now);
    pace.OnEnd(now += (i == 2 ? 100 : 1) * kMillisecond);
  }
  EXPECT_EQ(pace.Grace(), kMillisecond / 20);
}

TEST(PaceTest, WhatIsKnownFromElsewhereCountsFirst) {
  Pace pace;
  pace.Assume(0);
  EXPECT_EQ(pace.MaxWait(), Pace::kUnknown);
  pace.Assume(300 * kMillisecond);
  EXPECT_EQ(pace.Step(), 300 * kMillisecond);
  EXPECT_EQ(pace.MaxWait(), 3 * kSecond);
  pace.Assume(kSecond);  // It has some already.
  EXPECT_EQ(pace.Step(), 300 * kMillisecond);
  Time now = kSecond;
  for (int i = 0; i < 6; ++i) {
    pace.OnBegin(now);
    pace.OnEnd(now += 500 * kMillisecond);
  }
  EXPECT_EQ(pace.Step(), 500 * kMillisecond);
}

TEST(PaceTest, WhatHasNotBegunDoesNotEnd) {
  Pace pace;
  for (int i = 0; i < 10; ++i) pace.OnEnd(kSecond);
  EXPECT_EQ(pace.MaxWait(), Pace::kUnknown);
}

}  // namespace
}  // namespace covey
