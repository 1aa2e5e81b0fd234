// Ranks that share no memory decide each version once, alike everywhere, whoever leads, stops, dies
// or comes back late; every gradient counts once, and ranks that run are not held up.
//
// Method: seeds of the simulator of seats (tests/sim/simulator/host_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/hosts_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulator/host_simulation.h"

namespace covey {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 300;
#else
constexpr uint64_t kSeeds = 3000;
#endif

TEST(HostsTest, EverythingHolds) {
  const char* only = std::getenv("SIM_SEED");
  const char* base = std::getenv("SIM_BASE");
  const char* begin = only != nullptr ? only : base != nullptr ? base : "1";
  const uint64_t first = std::strtoull(begin, nullptr, 10);
  const uint64_t last = only == nullptr ? first + kSeeds - 1 : first;
  HostVerdict sum;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    const HostVerdict verdict = RunHosts(seed);
    EXPECT_EQ(verdict.failure, "")
        << "seed " << seed << " (replay it with SIM_SEED=" << seed << "): " << verdict.swarm;
    sum.versions += verdict.versions;
    sum.late += verdict.late;
    sum.merged += verdict.merged;
    sum.stopped += verdict.stopped;
    sum.killed += verdict.killed;
    sum.expired += verdict.expired;
    sum.overdue += verdict.overdue;
    sum.returned += verdict.returned;
    sum.gave_up += verdict.gave_up;
    sum.attempts += verdict.attempts;
    sum.reigns += verdict.reigns;
    sum.adopted += verdict.adopted;
    sum.skipped += verdict.skipped;
    sum.taken += verdict.taken;
    sum.nulls += verdict.nulls;
  }
  std::printf("seeds %d to %d: %d versions, %d late, %d merged, %d stopped, %d killed\n",
              static_cast<int>(first), static_cast<int>(last), static_cast<int>(sum.versions),
              static_cast<int>(sum.late), static_cast<int>(sum.merged),
              static_cast<int>(sum.stopped), static_cast<int>(sum.killed));
  std::printf("%d fell out of the log, %d snapshots taken\n", static_cast<int>(sum.skipped),
              static_cast<int>(sum.taken));
  std::printf("%d expired, %d overdue, %d returned, %d gave up, %d attempts, %d led, %d adopted\n",
              static_cast<int>(sum.expired), static_cast<int>(sum.overdue),
              static_cast<int>(sum.returned), static_cast<int>(sum.gave_up),
              static_cast<int>(sum.attempts), static_cast<int>(sum.reigns),
              static_cast<int>(sum.adopted));
  if (HasFailure() || only != nullptr) return;
  // The seeds bring up what they are for.
  for (const uint64_t count :
       {sum.versions, sum.late, sum.merged, sum.stopped, sum.killed, sum.expired, sum.overdue,
        sum.returned, sum.gave_up, sum.reigns, sum.adopted, sum.taken, sum.nulls})
    EXPECT_GT(count, kSeeds / 60);
}

// Up to 64 ranks that come at once, whoever leads.
TEST(HostsTest, HoldsForAnyNumberOfRanks) {
  uint64_t versions = 0;
  for (int32_t size = 1; size <= 64 && !HasFailure(); size += size < 20 ? 1 : 11) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const HostVerdict verdict = RunHosts(seed, size);
      EXPECT_EQ(verdict.failure, "") << size << " ranks, seed " << seed << ": " << verdict.swarm;
      versions += verdict.versions;
    }
  }
  EXPECT_GT(versions, 100u);
}

TEST(HostsTest, ASeedGivesTheSameRunAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(RunHosts(seed).hash, RunHosts(seed).hash) << "seed " << seed;
}

}  // namespace
}  // namespace covey
