// Averaging with neighbors: right whatever the order and the peers, one error on all when ranks do
// not say the same of each other, nothing negotiated anew while they do.
//
// Method: seeds of the simulator of neighbors (tests/sim/simulator/neighbor_simulation.h says what
// is checked). SIM_SEED=N bazel run //tests:sim/neighbors_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/neighbor_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 60 : 1000;

TEST(NeighborsTest, EverythingHolds) {
  using V = NeighborVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunNeighbors(seed); },
           {{"done", &V::done},
            {"conflicts", &V::conflicts},
            {"refused", &V::refused},
            {"aborted", &V::aborted},
            {"mirrored", &V::mirrored},
            {"ranks that nobody reads", &V::unread},
            {"open to all", &V::open},
            {"coded", &V::coded}});
}

TEST(NeighborsTest, EverythingHoldsForUpTo64Ranks) {
  for (const int32_t size : {13, 33, 63, 64}) {
    const NeighborVerdict verdict = RunNeighbors(static_cast<uint64_t>(size), size);
    EXPECT_EQ(verdict.failure, "") << size << " ranks: " << verdict.swarm;
  }
}

TEST(NeighborsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<NeighborVerdict>([](uint64_t seed) { return RunNeighbors(seed); });
}

}  // namespace
}  // namespace covey
