// Trainings between hosts, with faults and slow messages: models are equal at equal version, every
// gradient counts once, and each rank comes to the end of its training.
//
// Method: seeds of the simulator of trainers (tests/sim/simulator/trainer_simulation.h says what is
// checked), over replicas. SIM_SEED=N bazel run //tests:sim/host_trainers_test repeats one;
// SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/trainer_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 300 : 1200;

TEST(HostTrainersTest, EverythingHolds) {
  using V = TrainerVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHostTrainers(seed); },
           {{"updates", &V::updates},
            {"runs of deltas", &V::deltas, 5},
            {"of models", &V::models, 5},
            {"passes after others' versions", &V::caught_up, 100},
            {"offered again", &V::offered_again, 0},
            {"late", &V::late},
            {"stopped", &V::stopped},
            {"killed", &V::killed},
            {"unfit", &V::unfit},
            {"actions not done", &V::refused},
            {"states given", &V::packed},
            {"taken over", &V::unpacked},
            {"finish() timed out", &V::timeouts},
            {"went on without ranks", &V::went_on},
            {"rounds left", &V::left},
            {"finished", &V::finished},
            {"settled", &V::settled},
            {"ends of all, compared", &V::gathered},
            {"all counted", &V::whole, 3},
            {"ranks that went on to rounds of models", &V::handed_over, 5},
            {"though one was overdue", &V::handed_late},
            {"in finish()", &V::handed_in_finish},
            {"before a step", &V::handed_in_pass, 200},
            {"contributions withdrawn", &V::withdrawn},
            {"states left behind", &V::left_states},
            {"and found", &V::found_states, 0},
            {"all counted there", &V::handed_whole},
            {"ranks that left rounds of models after them", &V::went_further},
            {"trainers that were over", &V::over},
            {"with updates of each rank", &V::over_local},
            {"in finish()", &V::over_in_finish}});
}

TEST(HostTrainersTest, ASeedGivesTheSameRunAgain) {
  RunTwice<TrainerVerdict>([](uint64_t seed) { return RunHostTrainers(seed); });
}

}  // namespace
}  // namespace covey
