// Goal: staging goes the way that is faster now, also after that has changed, and trying the other
// way costs little.
// Method: exchanges that take what a given way costs, with noise from a printed seed.
#include "core/run/store_tuner.h"

#include <gtest/gtest.h>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr size_t kBytes = 256 * 1024;
constexpr Stores kWays[] = {Stores::kCached, Stores::kStreaming};

class StoreTunerTest : public testing::TestWithParam<uint64_t> {
 protected:
  StoreTunerTest() : rng_(GetParam()) {}

  // Runs `count` exchanges of which each takes costs[way] and up to half as much again, one in ten
  // a multiple; how many went around the cache.
  int Run(int count, Time cached, Time streaming) {
    int streamed = 0;
    for (int i = 0; i < count; ++i) {
      const Stores stores = choice_.Next(kBytes);
      const Time cost = stores == Stores::kCached ? cached : streaming;
      streamed += stores == Stores::kStreaming ? 1 : 0;
      const auto most = static_cast<uint64_t>(rng_.Percent(10) ? 10 * cost : cost / 4);
      choice_.Learn(kBytes, stores, cost + static_cast<Time>(rng_.Below(most)));
    }
    return streamed;
  }

  Rng rng_;
  StoreTuner choice_;
};

TEST_P(StoreTunerTest, TheFasterWayIsUsedButForTrials) {
  EXPECT_LE(Run(2000, 17000, 26000), 2000 / 128 * 2 + 20) << "seed " << GetParam();
  EXPECT_LE(Run(5200, 17000, 26000), 5200 / 520 * 8) << "seed " << GetParam();
}

TEST_P(StoreTunerTest, AChangeIsNoticedWithTheNextTrial) {
  const int run = StoreTuner::kLongestRun + 2 * StoreTuner::kSamples;
  Run(2000, 17000, 26000);
  Run(run, 145000, 52000);
  EXPECT_GE(Run(1000, 145000, 52000), 1000 - 1000 / 128 * 8 - 20) << "seed " << GetParam();
  Run(run, 17000, 26000);
  EXPECT_LE(Run(1000, 17000, 26000), 1000 / 128 * 8 + 20) << "seed " << GetParam();
}

// Both ways become slower together, for a while: the choice stays.
TEST_P(StoreTunerTest, AllBecomeSlower) {
  Run(2000, 17000, 18000);
  for (const Time factor : {3, 1, 8, 2}) {
    EXPECT_LE(Run(700, 17000 * factor, 22000 * factor), 700 / 64 * 8) << "seed " << GetParam();
  }
}

TEST_P(StoreTunerTest, LengthsOfOneSizeAreComparedByTheByte) {
  int streamed = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t length = i % 3 == 0 ? kBytes : kBytes * 2 - 64;
    const Stores stores = choice_.Next(length);
    streamed += stores == Stores::kStreaming ? 1 : 0;
    const double cost = static_cast<double>(length) * (stores == Stores::kCached ? 1.0 : 1.3);
    choice_.Learn(length, stores, static_cast<Time>(cost));
  }
  EXPECT_LE(streamed, 100) << "seed " << GetParam();
}

TEST_P(StoreTunerTest, ShortMessagesAreCached) {
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(choice_.Next(StoreTuner::kLeastBytes - 1), Stores::kCached);
    choice_.Learn(StoreTuner::kLeastBytes - 1, kWays[i % 2], 1000 - i);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, StoreTunerTest, testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace covey
