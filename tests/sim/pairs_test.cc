// Models averaged in pairs: no progress is lost or counts twice, means move nothing, no rank waits
// for another, and in the end all have the mean.
//
// Method: seeds of the simulator of pairs (tests/sim/simulator/pair_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/pairs_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/pair_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 300 : 500;

TEST(PairsTest, EverythingHolds) {
  using V = PairVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunPairs(seed); },
           {{"updates", &V::updates},
            {"merged", &V::merged},
            {"exchanges", &V::exchanges},
            {"busy", &V::busy},
            {"without buffers", &V::no_buffers, 0},
            {"absent", &V::absent},
            {"batches of local steps", &V::batches},
            {"undecided", &V::undecided},
            {"stopped", &V::stopped},
            {"killed", &V::killed},
            {"equal ends", &V::equal},
            {"gave up finishing", &V::gave_up},
            {"too late", &V::came_too_late},
            {"epochs", &V::epochs},
            {"looks", &V::looks},
            {"torn", &V::torn},
            {"coded", &V::coded},
            {"decoded", &V::decoded},
            {"repaired", &V::repaired}});
}

TEST(PairsTest, EverythingHoldsForUpTo64Ranks) {
  uint64_t exchanges = 0;
  for (int32_t size = 1; size <= 64 && !HasFailure(); size += size < 20 ? 1 : 11)
    for (uint64_t seed = 1; seed <= (size < 20 ? 3 : 1); ++seed) {
      const PairVerdict verdict = RunPairs(seed, size);
      EXPECT_EQ(verdict.failure, "") << size << " ranks, seed " << seed << ": " << verdict.swarm;
      exchanges += verdict.exchanges;
    }
  EXPECT_GT(exchanges, 100u);
}

TEST(PairsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<PairVerdict>([](uint64_t seed) { return RunPairs(seed); });
}

}  // namespace
}  // namespace covey
