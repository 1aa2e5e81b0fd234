// Windows: a reader gets memory of one moment or is told that it has not, whatever the owner does
// meanwhile, and wherever that is stopped.
//
// Method: seeds of the simulator of windows (tests/sim/simulator/window_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/windows_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "core/transport/seqlock.h"
#include "tests/sim/simulator/window_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

TEST(WindowsTest, EverythingHolds) {
  using V = WindowVerdict;
  Sweep<V>(20000, [](uint64_t seed) { return RunWindows(seed); },
           {{"whole", &V::whole},
            {"changing", &V::changing},
            {"nothing", &V::nothing},
            {"closed", &V::closed},
            {"stopped", &V::stopped}});
}

TEST(WindowsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<WindowVerdict>([](uint64_t seed) { return RunWindows(seed); });
}

}  // namespace
}  // namespace covey
