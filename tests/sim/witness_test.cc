// As hosts_test, of an even number of ranks with a witness: of two halves that do not hear each
// other the one goes on that reaches it, and versions are committed once, alike everywhere.
//
// Method: seeds of the simulator of replicas; links between halves are cut one way or both, the
// witness is out of reach of some ranks or all, or gone. SIM_SEED=N bazel run
// //tests:sim/witness_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include "tests/sim/simulator/host_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 300 : 500;

TEST(WitnessTest, EverythingHolds) {
  using V = HostVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHostsWithWitness(seed); },
           {{"versions", &V::versions},
            {"late", &V::late},
            {"stopped", &V::stopped},
            {"killed", &V::killed},
            {"overdue", &V::overdue},
            {"returned", &V::returned},
            {"gave up", &V::gave_up},
            {"elections", &V::elections},
            {"votes of the witness", &V::witness_votes},
            {"acceptances of the witness", &V::witness_acceptances},
            {"adopted", &V::adopted},
            {"abandoned", &V::abandoned},
            {"fell out of the log", &V::skipped, 0},
            {"snapshots taken", &V::taken},
            {"left", &V::left},
            {"lacking", &V::lacking, 0}});
}

// A candidate that has learnt who leads its term, and is then left alone (replicated-W4).
TEST(WitnessTest, EverythingHoldsForASeedThatFoundSomething) {
  const HostVerdict verdict = RunHostsWithWitness(407);
  EXPECT_EQ(verdict.failure, "") << verdict.swarm;
}

TEST(WitnessTest, ASeedGivesTheSameRunAgain) {
  RunTwice<HostVerdict>([](uint64_t seed) { return RunHostsWithWitness(seed); });
}

}  // namespace
}  // namespace covey
