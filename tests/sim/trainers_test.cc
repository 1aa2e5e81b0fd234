// Whatever ranks stop, die, dawdle or fail to do wherever: models are equal at equal version, every
// gradient counts once, and each rank comes to the end of its training.
//
// Method: seeds of the simulator of trainers (tests/sim/simulator/trainer_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/trainers_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/trainer_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 200 : 2000;

TEST(TrainersTest, EverythingHolds) {
  using V = TrainerVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunTrainers(seed); },
           {{"updates", &V::updates},
            {"runs of deltas", &V::deltas, 5},
            {"of models", &V::models, 5},
            {"passes after others' versions", &V::caught_up, 100},
            {"versions that are due in a moment", &V::due, 300},
            {"that were not made then", &V::not_made, 1000},
            {"offered again", &V::offered_again},
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
            {"before a step", &V::handed_in_pass},
            {"contributions withdrawn", &V::withdrawn},
            {"states left behind", &V::left_states},
            {"and found", &V::found_states},
            {"all counted there", &V::handed_whole},
            {"ranks that left rounds of models after them", &V::went_further},
            {"trainers that were over", &V::over},
            {"with updates of each rank", &V::over_local},
            {"in finish()", &V::over_in_finish}});
}

TEST(TrainersTest, EverythingHoldsForUpTo32Ranks) {
  for (int32_t ranks = 2; ranks <= 32 && !HasFailure(); ranks += ranks < 10 ? 1 : 11) {
    const uint64_t seed = static_cast<uint64_t>(ranks) * 1000;
    const TrainerVerdict verdict = RunTrainers(seed, ranks);
    EXPECT_EQ(verdict.failure, "") << ranks << " ranks, seed " << seed << ": " << verdict.swarm;
    EXPECT_GT(verdict.updates, 0u) << ranks << " ranks, seed " << seed;
  }
}

TEST(TrainersTest, ASeedGivesTheSameRunAgain) {
  RunTwice<TrainerVerdict>([](uint64_t seed) { return RunTrainers(seed); });
}

}  // namespace
}  // namespace covey
