// Collectives that devices do among themselves: one order of launches on all ranks though nobody
// decides it, one decision on all whether an exchange goes over the circuit, and an end for
// everything when a rank dies or a circuit fails.
//
// Method: seeds of the simulator of circuits (tests/sim/simulator/circuit_simulation.h says what
// is checked). SIM_SEED=N bazel run //tests:sim/circuits_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/circuit_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 120;
#else
constexpr uint64_t kSeeds = 600;
#endif

TEST(CircuitsTest, EverythingHolds) {
  using V = CircuitSimVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunCircuits(seed); },
           {{"done", &V::done},
            {"by circuit", &V::by_circuit},
            {"begun again", &V::again},
            {"in common", &V::in_common},
            {"aborted", &V::aborted},
            {"mirrored", &V::mirrored},
            {"without a library", &V::without},
            {"on one device", &V::shared},
            {"never ready", &V::never_ready},
            {"circuits that fail", &V::fails},
            {"ranks that die", &V::dies},
            {"refused", &V::refused}});
}

TEST(CircuitsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<CircuitSimVerdict>([](uint64_t seed) { return RunCircuits(seed); });
}

}  // namespace
}  // namespace covey
