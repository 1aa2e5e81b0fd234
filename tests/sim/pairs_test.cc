// Models averaged in pairs: no progress is lost or counts twice, means move nothing, nobody waits
// for anybody, and in the end all have the mean.
//
// Method: seeds of the simulator of pairs (tests/sim/simulator/pair_simulation.h says what is
// checked). SIM_SEED=N bazel run //tests:sim/pairs_test repeats one; SIM_BASE=N begins elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulator/pair_simulation.h"

namespace covey {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 300;
#else
constexpr uint64_t kSeeds = 3000;
#endif

TEST(PairsTest, EverythingHolds) {
  const char* only = std::getenv("SIM_SEED");
  const char* base = std::getenv("SIM_BASE");
  const char* begin = only != nullptr ? only : base != nullptr ? base : "1";
  const uint64_t first = std::strtoull(begin, nullptr, 10);
  const uint64_t last = only == nullptr ? first + kSeeds - 1 : first;
  PairVerdict sum;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    const PairVerdict verdict = RunPairs(seed);
    EXPECT_EQ(verdict.failure, "")
        << "seed " << seed << " (replay it with SIM_SEED=" << seed << "): " << verdict.swarm;
    sum.updates += verdict.updates;
    sum.merged += verdict.merged;
    sum.exchanges += verdict.exchanges;
    sum.busy += verdict.busy;
    sum.no_room += verdict.no_room;
    sum.absent += verdict.absent;
    sum.undecided += verdict.undecided;
    sum.stopped += verdict.stopped;
    sum.killed += verdict.killed;
    sum.equal += verdict.equal;
    sum.epochs += verdict.epochs;
    sum.looks += verdict.looks;
    sum.torn += verdict.torn;
  }
  std::printf("seeds %d to %d: %d updates, %d merged, %d exchanges, %d busy, %d without room\n",
              static_cast<int>(first), static_cast<int>(last), static_cast<int>(sum.updates),
              static_cast<int>(sum.merged), static_cast<int>(sum.exchanges),
              static_cast<int>(sum.busy), static_cast<int>(sum.no_room));
  std::printf(
      "%d absent, %d undecided, %d stopped, %d killed, %d equal, %d epochs, %d of %d torn\n",
      static_cast<int>(sum.absent), static_cast<int>(sum.undecided), static_cast<int>(sum.stopped),
      static_cast<int>(sum.killed), static_cast<int>(sum.equal), static_cast<int>(sum.epochs),
      static_cast<int>(sum.torn), static_cast<int>(sum.looks));
  if (HasFailure() || only != nullptr) return;
  // The seeds bring up what they are for.
  for (const uint64_t count :
       {sum.updates, sum.merged, sum.exchanges, sum.busy, sum.no_room, sum.absent, sum.undecided,
        sum.stopped, sum.killed, sum.equal, sum.epochs, sum.torn})
    EXPECT_GT(count, kSeeds / 60);
}

TEST(PairsTest, EverythingHoldsForUpTo64Ranks) {
  uint64_t exchanges = 0;
  for (int32_t size = 1; size <= 64 && !HasFailure(); size += size < 20 ? 1 : 11)
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const PairVerdict verdict = RunPairs(seed, size);
      EXPECT_EQ(verdict.failure, "") << size << " ranks, seed " << seed << ": " << verdict.swarm;
      exchanges += verdict.exchanges;
    }
  EXPECT_GT(exchanges, 100u);
}

TEST(PairsTest, ASeedGivesTheSameRunAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(RunPairs(seed).hash, RunPairs(seed).hash) << "seed " << seed;
}

}  // namespace
}  // namespace covey
