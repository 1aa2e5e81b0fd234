// Whole trainings in pairs of ranks on several hosts: what sim/trainer_pairs_test says holds there,
// however long messages take.
//
// Method: seeds of the simulator of trainers in pairs (simulator/trainer_pairs_simulation.h says
// what is checked), between hosts. SIM_SEED=N bazel run //tests:sim/host_trainer_pairs_test repeats
// one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/trainer_pairs_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 200 : 600;

TEST(HostTrainerPairsTest, EverythingHolds) {
  using V = TrainerPairsVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHostTrainersInPairs(seed); },
           {{"updates", &V::updates},
            {"averages", &V::begun},
            {"stopped", &V::stopped},
            {"killed", &V::killed},
            {"actions not done", &V::refused},
            {"waited in vain", &V::timeouts},
            {"trained on then", &V::trained_on},
            {"went on without ranks", &V::went_on},
            {"ended after that with all", &V::ended_later},
            {"finished", &V::finished},
            {"settled", &V::settled},
            {"finished again", &V::finished_again},
            {"models seen", &V::seen},
            {"epochs of which all is known", &V::whole, 4}});
}

TEST(HostTrainerPairsTest, EverythingHoldsAmongOtherParts) {
  using V = TrainerPairsVerdict;
  Sweep<V>(kSeeds, RunHostTrainersInParts,
           {{"updates", &V::updates},
            {"averages", &V::begun},
            {"actions not done", &V::refused},
            {"waited in vain", &V::timeouts},
            {"ticks", &V::ticks},
            {"pairs begun", &V::entered},
            {"pairs ended", &V::quitted},
            {"states taken", &V::unpacked},
            {"taken back", &V::withdrawn, 400},
            {"trained on then", &V::trained_on},
            {"went on without ranks", &V::went_on},
            {"finished", &V::finished},
            {"settled", &V::settled},
            {"epochs of which all is known", &V::whole, 4}});
}

TEST(HostTrainerPairsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<TrainerPairsVerdict>([](uint64_t seed) { return RunHostTrainersInPairs(seed); });
}

}  // namespace
}  // namespace covey
