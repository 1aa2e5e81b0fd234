// Whatever ranks stop, die or dawdle wherever, versions are right, alike on all ranks and in order,
// every gradient counts once, and ranks that run are not held up.
//
// Method: seeds of the simulator of rounds (tests/sim/simulator/round_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/rounds_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulator/round_seeds.h"
#include "tests/sim/simulator/round_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 300 : 500;
constexpr uint64_t kSeedsOfASize = kIsSanitized ? 1 : 3;

TEST(RoundsTest, EverythingHolds) {
  using V = RoundVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunRounds(seed); },
           {{"versions", &V::versions},
            {"late", &V::late},
            {"merged", &V::merged},
            {"stopped", &V::stopped},
            {"killed", &V::killed},
            {"again", &V::again},
            {"gone", &V::gone},
            {"expired", &V::expired},
            {"overdue", &V::overdue},
            {"returned", &V::returned},
            {"gave up", &V::gave_up},
            {"skipped", &V::skipped},
            {"snapshots given", &V::given},
            {"taken", &V::taken},
            {"retracted", &V::retracted, 0},
            {"empty steps", &V::empty_steps},
            {"taken back", &V::taken_back},
            {"dropped", &V::dropped},
            {"ends with others' version", &V::rejoined},
            {"at limit", &V::at_limit, 200}});
}

TEST(RoundsTest, EverythingHoldsForSeedsThatFoundSomething) {
  for (const uint64_t seed : kRoundSeeds) {
    const RoundVerdict verdict = RunRounds(seed);
    EXPECT_EQ(verdict.failure, "") << "seed " << seed << ": " << verdict.swarm;
  }
}

// Odd numbers and primes too. Above 20 few of them: each takes as long as all below.
TEST(RoundsTest, EverythingHoldsForUpTo64Ranks) {
  const int32_t stride = std::getenv("TEST_SLOW") == nullptr ? 11 : 1;
  for (int32_t ranks = 1; ranks <= 64; ranks += ranks < 20 ? 1 : stride)
    for (uint64_t i = 1; i <= kSeedsOfASize && !HasFailure(); ++i) {
      const uint64_t seed = static_cast<uint64_t>(ranks) * 1000 + i;
      const RoundVerdict verdict = RunRounds(seed, ranks);
      EXPECT_EQ(verdict.failure, "") << ranks << " ranks, seed " << seed << ": " << verdict.swarm;
      EXPECT_GT(verdict.versions, 0u) << ranks << " ranks, seed " << seed;
    }
}

TEST(RoundsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<RoundVerdict>([](uint64_t seed) { return RunRounds(seed); });
}

}  // namespace
}  // namespace covey
