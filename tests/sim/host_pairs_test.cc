// Ranks on several hosts stop, die or are slow at any instruction, and messages take their time: no
// progress is lost, finish() leaves one model, and no step waits.
//
// Method: seeds of the simulator (tests/sim/simulator/host_pairs_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/host_pairs_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/host_pairs_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 100 : 1000;

TEST(HostPairsTest, EverythingHolds) {
  using V = HostPairsVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHostPairs(seed); },
           {{"steps", &V::steps},
            {"averages on a host", &V::near},
            {"offers", &V::offers},
            {"taken", &V::taken},
            {"declined", &V::declined},
            {"lost", &V::lost, 0},
            {"stopped", &V::stopped},
            {"stopped for ever", &V::gone},
            {"killed", &V::killed},
            {"waited in vain", &V::timeouts},
            {"trained on then", &V::trained_on},
            {"went on without ranks", &V::went_on},
            {"ended after that with all", &V::ended_later},
            {"finished", &V::finished},
            {"settled", &V::settled},
            {"epochs of which all is known", &V::whole, 4},
            {"looks", &V::looks},
            {"without a mean", &V::without_mean, 0},
            {"decoded", &V::decoded},
            {"repaired", &V::repaired, 0}});
}

TEST(HostPairsTest, EverythingHoldsForUpTo16Ranks) {
  for (int32_t ranks = 2; ranks <= 16 && !HasFailure(); ranks += ranks < 8 ? 1 : 4) {
    const uint64_t seed = static_cast<uint64_t>(ranks) * 1000;
    const HostPairsVerdict verdict = RunHostPairs(seed, ranks);
    EXPECT_EQ(verdict.failure, "") << ranks << " ranks, seed " << seed << ": " << verdict.swarm;
  }
}

// A model that comes of a lost rank; a mean that has died with all that had it; ranks that wait in
// vain in turns; of two ranks the one that has decided dies.
TEST(HostPairsTest, SeedsThatHaveFailed) {
  for (const uint64_t seed : {3002978u, 4001192u, 2012818u, 1000761u, 5023749u})
    EXPECT_EQ(RunHostPairs(seed).failure, "") << "seed " << seed;
}

TEST(HostPairsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<HostPairsVerdict>([](uint64_t seed) { return RunHostPairs(seed); });
}

}  // namespace
}  // namespace covey
