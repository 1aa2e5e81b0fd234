// Whatever ranks on several hosts stop, die, dawdle or fail to do wherever, and however long their
// messages take: models are equal at equal version, every gradient counts once, and each rank comes
// to the end of its training.
//
// Method: seeds of the simulator of trainers (tests/sim/simulator/trainer_simulation.h says what is
// checked), over replicas. SIM_SEED=N bazel run //tests:sim/host_trainers_test repeats one;
// SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/trainer_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 50 : 400;

TEST(HostTrainersTest, EverythingHolds) {
  using V = TrainerVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHostTrainers(seed); },
           {{"updates", &V::updates},
            {"runs of deltas", &V::deltas, 5},
            {"of models", &V::models, 5}});
}

TEST(HostTrainersTest, ASeedGivesTheSameRunAgain) {
  RunTwice<TrainerVerdict>([](uint64_t seed) { return RunHostTrainers(seed); });
}

}  // namespace
}  // namespace covey
