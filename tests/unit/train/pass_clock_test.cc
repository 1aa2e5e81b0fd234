// When a rank waits before its pass, in made-up times.
#include "core/train/pass_clock.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

// Versions end each 90 ms up to the tenth, at 900 ms, and a pass takes `pass`.
PassClock ClockOf(Time pass) {
  PassClock clock;
  for (uint64_t version = 1; version <= 10; ++version)
    clock.See(version, static_cast<Time>(version) * 90 * kMillisecond);
  clock.Begin(0);
  clock.End(pass);
  return clock;
}

TEST(PassClockTest, ARankWaitsForAVersionThatIsDueInAMoment) {
  const PassClock clock = ClockOf(60 * kMillisecond);
  EXPECT_EQ(clock.Patience(11, 980 * kMillisecond), 16 * kMillisecond) << "10, and a tenth of 60";
  EXPECT_EQ(clock.Patience(11, 990 * kMillisecond), 6 * kMillisecond) << "it may be late itself";
}

TEST(PassClockTest, NotForOneThatIsFarOrOverdue) {
  const PassClock clock = ClockOf(60 * kMillisecond);
  EXPECT_EQ(clock.Patience(11, 965 * kMillisecond), 0) << "25 ms are more than a third of a pass";
  EXPECT_EQ(clock.Patience(11, 997 * kMillisecond), 0) << "it was due before";
  EXPECT_EQ(clock.Patience(9, 980 * kMillisecond), 0);
}

TEST(PassClockTest, NotWithoutATimeToGoBy) {
  PassClock clock;
  EXPECT_EQ(clock.Patience(1, 0), 0);
  clock.See(1, 10);
  clock.Begin(0);
  clock.End(5);
  EXPECT_EQ(clock.Patience(2, 11), 0) << "one version has no period";
}

TEST(PassClockTest, TheMedianCountsNotAnOutlier) {
  PassClock clock = ClockOf(60 * kMillisecond);
  for (int pass = 0; pass < 4; ++pass) {
    clock.Begin(0);
    clock.End(pass == 2 ? 10 * kSecond : 60 * kMillisecond);
  }
  EXPECT_EQ(clock.Patience(11, 980 * kMillisecond), 16 * kMillisecond);
}

}  // namespace
}  // namespace covey
