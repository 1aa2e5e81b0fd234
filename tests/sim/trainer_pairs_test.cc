// Whatever ranks of a training in pairs stop, die, dawdle or fail to do wherever: nothing that was
// learnt is lost, finish() leaves one model, settle() each rank's own, and no step waits.
//
// Method: seeds of the simulator (tests/sim/simulator/trainer_pairs_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/trainer_pairs_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/trainer_pairs_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 200 : 2000;

TEST(TrainerPairsTest, EverythingHolds) {
  using V = TrainerPairsVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunTrainersInPairs(seed); },
           {{"updates", &V::updates},
            {"averages", &V::begun},
            {"steps met by others", &V::met},
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
            {"changed meanwhile", &V::changed_meanwhile},
            {"epochs of which all is known", &V::whole, 4}});
}

TEST(TrainerPairsTest, EverythingHoldsAmongOtherParts) {
  using V = TrainerPairsVerdict;
  Sweep<V>(kSeeds, RunTrainersInParts,
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

TEST(TrainerPairsTest, EverythingHoldsForUpTo32Ranks) {
  for (int32_t ranks = 2; ranks <= 32 && !HasFailure(); ranks += ranks < 10 ? 1 : 11) {
    const uint64_t seed = static_cast<uint64_t>(ranks) * 1000;
    const TrainerPairsVerdict verdict = RunTrainersInPairs(seed, ranks);
    EXPECT_EQ(verdict.failure, "") << ranks << " ranks, seed " << seed << ": " << verdict.swarm;
  }
}

TEST(TrainerPairsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<TrainerPairsVerdict>([](uint64_t seed) { return RunTrainersInPairs(seed); });
}

}  // namespace
}  // namespace covey
