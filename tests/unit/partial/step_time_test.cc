// Goal: how long a rank waits for one that is missing, and for others once enough have come,
// follows the median of its own steps, not one that took long.
// Method: steps of known length.
#include "core/partial/step_time.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

TEST(StepTimeTest, TenTimesTheMedianButNotLessThanASecond) {
  StepTime step_time;
  EXPECT_EQ(step_time.MaxWait(), StepTime::kUnknown);
  Time now = kSecond;
  const auto step = [&](Time length) {
    step_time.OnBegin(now);
    step_time.OnEnd(now += length);
    now += kSecond;  // of waiting, which does not count
  };
  for (int i = 0; i < 4; ++i) step(300 * kMillisecond);
  EXPECT_EQ(step_time.MaxWait(), StepTime::kUnknown);
  step(3600 * kSecond);
  EXPECT_EQ(step_time.MaxWait(), 3 * kSecond);
  for (int i = 0; i < 31; ++i) step(kMillisecond);
  EXPECT_EQ(step_time.MaxWait(), StepTime::kLeast);
}

TEST(StepTimeTest, GraceIsATwentiethOfTheMedian) {
  StepTime step_time;
  Time now = kSecond;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(step_time.Grace(20), 0);
    step_time.OnBegin(now);
    step_time.OnEnd(now += (i == 2 ? 100 : 1) * kMillisecond);
  }
  EXPECT_EQ(step_time.Grace(20), kMillisecond / 20);
}

TEST(StepTimeTest, WhatIsKnownFromElsewhereCountsFirst) {
  StepTime step_time;
  step_time.Assume(0);
  EXPECT_EQ(step_time.MaxWait(), StepTime::kUnknown);
  step_time.Assume(300 * kMillisecond);
  EXPECT_EQ(step_time.Step(), 300 * kMillisecond);
  EXPECT_EQ(step_time.MaxWait(), 3 * kSecond);
  step_time.Assume(kSecond);  // It has some already.
  EXPECT_EQ(step_time.Step(), 300 * kMillisecond);
  Time now = kSecond;
  for (int i = 0; i < 6; ++i) {
    step_time.OnBegin(now);
    step_time.OnEnd(now += 500 * kMillisecond);
  }
  EXPECT_EQ(step_time.Step(), 500 * kMillisecond);
}

TEST(StepTimeTest, WhatHasNotBegunDoesNotEnd) {
  StepTime step_time;
  for (int i = 0; i < 10; ++i) step_time.OnEnd(kSecond);
  EXPECT_EQ(step_time.MaxWait(), StepTime::kUnknown);
}

}  // namespace
}  // namespace covey
