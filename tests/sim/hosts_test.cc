// Ranks that share no memory commit each version once, alike everywhere, whichever ranks lead,
// stop, die or come back late; every gradient counts once, and ranks that run are not held up.
//
// Method: seeds of the simulator of replicas (tests/sim/simulator/host_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/hosts_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulator/host_seeds.h"
#include "tests/sim/simulator/host_simulation.h"
#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 300 : 500;
constexpr uint64_t kSeedsOfASize = kIsSanitized ? 1 : 2;

TEST(HostsTest, EverythingHolds) {
  using V = HostVerdict;
  Sweep<V>(kSeeds, [](uint64_t seed) { return RunHosts(seed); },
           {{"versions", &V::versions},
            {"late", &V::late},
            {"merged", &V::merged},
            {"stopped", &V::stopped},
            {"killed", &V::killed},
            {"expired", &V::expired},
            {"overdue", &V::overdue},
            {"returned", &V::returned},
            {"gave up", &V::gave_up},
            {"terms", &V::terms, 0},
            {"elections", &V::elections},
            {"adopted", &V::adopted},
            {"abandoned", &V::abandoned},
            {"by a hub", &V::by_hub},
            {"fell out of the log", &V::skipped, 0},
            {"snapshots taken", &V::taken},
            {"empty steps", &V::empty_steps},
            {"left", &V::left},
            {"lacking", &V::lacking, 0},
            {"went on without others", &V::settled},
            {"came later", &V::rejoined},
            {"dropped steps", &V::dropped}});
}

TEST(HostsTest, EverythingHoldsForSeedsThatFoundSomething) {
  for (const uint64_t seed : kHostSeeds) {
    const HostVerdict verdict = RunHosts(seed);
    EXPECT_EQ(verdict.failure, "") << "seed " << seed << ": " << verdict.swarm;
  }
}

// Up to 64 ranks that come at once, under any leader.
TEST(HostsTest, HoldsForAnyNumberOfRanks) {
  const uint64_t seeds = std::getenv("TEST_SLOW") == nullptr ? kSeedsOfASize : 4 * kSeedsOfASize;
  uint64_t runs = 0, versions = 0;
  for (int32_t size = 1; size <= 64 && !HasFailure(); size += size < 20 ? 1 : 11) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const HostVerdict verdict = RunHosts(seed, size);
      EXPECT_EQ(verdict.failure, "") << size << " ranks, seed " << seed << ": " << verdict.swarm;
      versions += verdict.versions;
      ++runs;
    }
  }
  EXPECT_GT(versions, runs);
}

TEST(HostsTest, ASeedGivesTheSameRunAgain) {
  RunTwice<HostVerdict>([](uint64_t seed) { return RunHosts(seed); });
}

}  // namespace
}  // namespace covey
