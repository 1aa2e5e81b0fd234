// Collectives that devices do among themselves: one order of launches on all ranks without a
// coordinator, one decision on all whether an exchange goes over the communicator, and an end for
// everything when a rank dies or a communicator fails.
//
// Method: seeds of the simulator of communicators (tests/sim/simulator/communicator_simulation.h
// says what is checked). SIM_SEED=N bazel run //tests:sim/communicators_test repeats one;
// SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/communicator_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 120 : 600;

TEST(CommunicatorsTest, EverythingHolds) {
  using V = CommunicatorSimVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunCommunicators(seed); },
           {{"done", &V::done},
            {"by communicator", &V::by_communicator},
            {"begun again", &V::again},
            {"by IPC", &V::by_ipc},
            {"aborted", &V::aborted},
            {"mirrored", &V::mirrored},
            {"without a library", &V::without},
            {"on one device", &V::shared},
            {"never ready", &V::never_ready},
            {"communicators that fail", &V::fails},
            {"ranks that die", &V::dies},
            {"refused", &V::refused}});
}

TEST(CommunicatorsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<CommunicatorSimVerdict>([](uint64_t seed) { return RunCommunicators(seed); });
}

}  // namespace
}  // namespace covey
