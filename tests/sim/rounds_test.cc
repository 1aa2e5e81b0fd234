// Whatever ranks stop, die or dawdle wherever, versions are right, alike on all ranks and in order,
// every gradient counts once, and ranks that run are not held up.
//
// Method: seeds of the simulator of rounds (tests/sim/simulator/round_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/rounds_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulator/round_seeds.h"
#include "tests/sim/simulator/round_simulation.h"

namespace covey {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 300;
constexpr uint64_t kSeedsOfASize = 1;
#else
constexpr uint64_t kSeeds = 3000;
constexpr uint64_t kSeedsOfASize = 3;
#endif

TEST(RoundsTest, EverythingHolds) {
  const char* only = std::getenv("SIM_SEED");
  const char* base = std::getenv("SIM_BASE");
  const char* begin = only != nullptr ? only : base != nullptr ? base : "1";
  const uint64_t first = std::strtoull(begin, nullptr, 10);
  const uint64_t last = only == nullptr ? first + kSeeds - 1 : first;
  RoundVerdict sum;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    const RoundVerdict verdict = RunRounds(seed);
    EXPECT_EQ(verdict.failure, "")
        << "seed " << seed << " (replay it with SIM_SEED=" << seed << "): " << verdict.swarm;
    sum.versions += verdict.versions;
    sum.late += verdict.late;
    sum.merged += verdict.merged;
    sum.stopped += verdict.stopped;
    sum.killed += verdict.killed;
    sum.again += verdict.again;
    sum.gone += verdict.gone;
    sum.expired += verdict.expired;
    sum.overdue += verdict.overdue;
    sum.returned += verdict.returned;
    sum.gave_up += verdict.gave_up;
    sum.at_limit += verdict.at_limit;
    sum.skipped += verdict.skipped;
    sum.given += verdict.given;
    sum.taken += verdict.taken;
    sum.withdrawn += verdict.withdrawn;
    sum.nulls += verdict.nulls;
  }
  std::printf("seeds %d to %d: %d versions, %d late, %d merged, %d stopped, %d killed, %d again\n",
              static_cast<int>(first), static_cast<int>(last), static_cast<int>(sum.versions),
              static_cast<int>(sum.late), static_cast<int>(sum.merged),
              static_cast<int>(sum.stopped), static_cast<int>(sum.killed),
              static_cast<int>(sum.again));
  std::printf("%d expired, %d overdue, %d returned, %d gave up\n", static_cast<int>(sum.expired),
              static_cast<int>(sum.overdue), static_cast<int>(sum.returned),
              static_cast<int>(sum.gave_up));
  std::printf("%d snapshots given, %d taken, %d withdrawn, %d at limit\n",
              static_cast<int>(sum.given), static_cast<int>(sum.taken),
              static_cast<int>(sum.withdrawn), static_cast<int>(sum.at_limit));
  if (HasFailure() || only != nullptr) return;
  // The seeds bring up what they are for.
  for (const uint64_t count : {sum.versions, sum.late, sum.merged, sum.stopped, sum.killed,
                               sum.again, sum.gone, sum.expired, sum.overdue, sum.returned,
                               sum.gave_up, sum.given, sum.taken, sum.skipped, sum.nulls})
    EXPECT_GT(count, kSeeds / 60);
  EXPECT_GT(sum.at_limit, kSeeds / 200);
}

TEST(RoundsTest, EverythingHoldsForSeedsThatFoundSomething) {
  for (const uint64_t seed : kRoundSeeds) {
    const RoundVerdict verdict = RunRounds(seed);
    EXPECT_EQ(verdict.failure, "") << "seed " << seed << ": " << verdict.swarm;
  }
}

// Odd numbers and primes too.
TEST(RoundsTest, EverythingHoldsForUpTo64Ranks) {
  for (int32_t ranks = 1; ranks <= 64; ++ranks)
    for (uint64_t i = 1; i <= kSeedsOfASize && !HasFailure(); ++i) {
      const uint64_t seed = static_cast<uint64_t>(ranks) * 1000 + i;
      const RoundVerdict verdict = RunRounds(seed, ranks);
      EXPECT_EQ(verdict.failure, "") << ranks << " ranks, seed " << seed << ": " << verdict.swarm;
      EXPECT_GT(verdict.versions, 0u) << ranks << " ranks, seed " << seed;
    }
}

TEST(RoundsTest, ASeedGivesTheSameRunAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(RunRounds(seed).hash, RunRounds(seed).hash) << "seed " << seed;
}

}  // namespace
}  // namespace covey
