// Whatever ranks stop, die or dawdle wherever: versions of models are the means they say they are,
// every rank gets the one that is right for it, and no rank is held up for longer than max_wait.
//
// Method: seeds of the simulator of rounds of models (tests/sim/simulator/model_simulation.h says
// what is checked). SIM_SEED=N bazel run //tests:sim/models_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/model_simulation.h"
#include "tests/sim/simulator/round_seeds.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 200 : 500;

TEST(ModelsTest, EverythingHolds) {
  using V = ModelVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunModels(seed); },
           {{"versions", &V::versions}, {"of all", &V::syncs},      {"final", &V::finals},
            {"passive", &V::passive},   {"again", &V::again},       {"late", &V::late},
            {"too old", &V::old},       {"stopped", &V::stopped},   {"killed", &V::killed},
            {"overdue", &V::overdue},   {"returned", &V::returned}, {"gave up", &V::gave_up},
            {"equal ends", &V::equal},  {"newer", &V::newer},       {"jumps", &V::jumps},
            {"begun anew", &V::anew},   {"kept", &V::kept},         {"taken", &V::taken},
            {"looks", &V::looks},       {"torn", &V::torn},         {"dropped", &V::dropped}});
}

TEST(ModelsTest, EverythingHoldsForSeedsThatFoundSomething) {
  for (const uint64_t seed : kModelSeeds) {
    const ModelVerdict verdict = RunModels(seed);
    EXPECT_EQ(verdict.failure, "") << "seed " << seed << ": " << verdict.swarm;
  }
}

// Odd numbers and primes too.
TEST(ModelsTest, EverythingHoldsForUpTo64Ranks) {
  for (int32_t ranks = 1; ranks <= 64 && !HasFailure(); ++ranks) {
    const uint64_t seed = static_cast<uint64_t>(ranks) * 1000;
    const ModelVerdict verdict = RunModels(seed, ranks);
    EXPECT_EQ(verdict.failure, "") << ranks << " ranks, seed " << seed << ": " << verdict.swarm;
    EXPECT_GT(verdict.versions, 0u) << ranks << " ranks, seed " << seed;
  }
}

TEST(ModelsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<ModelVerdict>([](uint64_t seed) { return RunModels(seed); });
}

}  // namespace
}  // namespace covey
