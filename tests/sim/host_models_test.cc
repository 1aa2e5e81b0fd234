// Ranks that share no memory average models in groups: each version's record is alike everywhere,
// each rank gets its own group's mean, whichever ranks lead, stop, die or come back late, and ranks
// that run are not held up.
//
// Method: seeds of the simulator of replicas with models
// (tests/sim/simulator/host_model_simulation.h says what is checked). SIM_SEED=N bazel run
// //tests:sim/host_models_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/host_model_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 200 : 500;

TEST(HostModelsTest, EverythingHolds) {
  using V = HostModelVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHostModels(seed); },
           {{"versions", &V::versions},   {"in groups", &V::grouped},   {"of all", &V::syncs},
            {"final", &V::finals},        {"passive", &V::passive},     {"again", &V::again},
            {"late", &V::late},           {"begun anew", &V::anew},     {"kept", &V::kept},
            {"overdue", &V::overdue},     {"returned", &V::returned},   {"gave up", &V::gave_up},
            {"equal ends", &V::equal},    {"newer", &V::newer},         {"stopped", &V::stopped},
            {"killed", &V::killed},       {"elections", &V::elections}, {"adopted", &V::adopted},
            {"abandoned", &V::abandoned}, {"left", &V::left},           {"taken", &V::taken, 0},
            {"absent means", &V::absent}, {"by a hub", &V::by_hub},     {"settled", &V::settled},
            {"rejoined", &V::rejoined},   {"dropped", &V::dropped}});
}

TEST(HostModelsTest, HoldsForAnyNumberOfRanks) {
  for (int32_t size = 1; size <= 31 && !HasFailure(); size += size < 16 ? 1 : 5) {
    const HostModelVerdict verdict = RunHostModels(static_cast<uint64_t>(size) * 100, size);
    EXPECT_EQ(verdict.failure, "") << size << " ranks: " << verdict.swarm;
    EXPECT_GT(verdict.versions, 0u) << size << " ranks";
  }
}

TEST(HostModelsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<HostModelVerdict>([](uint64_t seed) { return RunHostModels(seed); });
}

}  // namespace
}  // namespace covey
