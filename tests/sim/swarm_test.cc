// Whatever ranks, messages and faults do, operations end right, once, and alike on all members.
//
// Method: a thousand seeds of the simulator (tests/sim/simulator/simulation.h says what is
// checked), after the corpus of seeds that once failed. A failing seed is printed; it replays to
// the same trace:
//
//   SIM_SEED=N bazel run //tests:sim/swarm_test   SIM_TRACE=1 prints it all, SIM_FOCUS=losses is
//                                                 what stands behind the seed in the corpus
//   bazel test //tests:sim/swarm_test --test_env=SIM_BASE=N begins elsewhere
#include "tests/sim/simulator/simulation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace covey {
namespace {

constexpr int kBlocks = 5;
constexpr uint64_t kSlow = 50;  // times as many seeds by tools/test --slow

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeedsPerBlock = 40;
#else
constexpr uint64_t kSeedsPerBlock = 100;
#endif

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

Focus FocusInEnvironment() {
  const char* name = std::getenv("SIM_FOCUS");
  return FocusNamed(name == nullptr ? "none" : name);
}

Verdict Try(uint64_t seed, Focus focus) {
  const Verdict verdict = RunSeed(seed, FromEnvironment("SIM_TRACE", 0) != 0, focus);
  EXPECT_EQ(verdict.failure, "") << "seed " << seed << " (replay it with SIM_SEED=" << seed
                                 << "): " << verdict.swarm;
  return verdict;
}

TEST(CorpusTest, SeedsThatOnceFailed) {
  std::ifstream corpus("tests/sim/corpus.txt");
  ASSERT_TRUE(corpus.good()) << "tests/sim/corpus.txt cannot be read";
  int count = 0;
  for (std::string line; std::getline(corpus, line);) {
    if (line.empty() || line[0] == '#') continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    uint64_t seed = 0;
    std::string focus;
    ASSERT_TRUE(words >> seed >> focus) << "a line of the corpus begins with a seed and its focus";
    Try(seed, FocusNamed(focus));
    ++count;
  }
  EXPECT_GT(count, 0);
}

class SwarmTest : public testing::TestWithParam<int> {};

TEST_P(SwarmTest, EverythingHolds) {
  const uint64_t only = FromEnvironment("SIM_SEED", 0);
  if (only != 0) {
    if (GetParam() == 0) Try(only, FocusInEnvironment());
    return;
  }
  const uint64_t base = FromEnvironment("SIM_BASE", 1);
  const uint64_t seeds = kSeedsPerBlock * (std::getenv("TEST_SLOW") == nullptr ? 1 : kSlow);
  const uint64_t first = base + static_cast<uint64_t>(GetParam()) * seeds;
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + seeds - 1));
  Tally tally;
  for (uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed)
    tally.Add(Try(seed, Focus::kNone).tally);
  if (HasFailure() || kSeedsPerBlock < 100) return;
  // A hundred seeds bring up every way to end.
  for (const StatusCode code : {StatusCode::kOk, StatusCode::kMismatch, StatusCode::kAborted,
                                StatusCode::kExhausted, StatusCode::kUnsupported})
    EXPECT_GT(tally.ended[static_cast<size_t>(code)], 0u) << NameOf(code);
  for (const uint64_t count : tally.exchanges) EXPECT_GT(count, 0u);
  EXPECT_GT(tally.losses, 0u);
}

// Names that are dropped and come again, on some ranks late, where ranks join and die.
TEST(NamesTest, EverythingHoldsWhereNamesAreDropped) {
  Tally tally;
  const uint64_t first = FromEnvironment("SIM_BASE", 1) + 500'000;
  const uint64_t seeds = 2 * kSeedsPerBlock * (std::getenv("TEST_SLOW") == nullptr ? 1 : kSlow);
  for (uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed)
    tally.Add(Try(seed, Focus::kNames).tally);
  if (HasFailure() || kSeedsPerBlock < 100) return;
  EXPECT_GT(tally.drops, 500u);
  EXPECT_GT(tally.losses, 0u);
  for (const uint64_t count : tally.exchanges) EXPECT_GT(count, 0u);
}

// Small sums that come again and again, among others, where ranks deviate, join and die.
TEST(RepeatsTest, EverythingHoldsWhereSumsAreRepeated) {
  Tally tally;
  const uint64_t first = FromEnvironment("SIM_BASE", 1) + 600'000;
  const uint64_t seeds = 2 * kSeedsPerBlock * (std::getenv("TEST_SLOW") == nullptr ? 1 : kSlow);
  for (uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed)
    tally.Add(Try(seed, Focus::kRepeats).tally);
  if (HasFailure() || kSeedsPerBlock < 100) return;
  EXPECT_GT(tally.repeats_done, 200u);
  EXPECT_GT(tally.repeats_begun, 200u);
  EXPECT_GT(tally.losses, 0u);
  for (const uint64_t count : tally.exchanges) EXPECT_GT(count, 0u);
}

INSTANTIATE_TEST_SUITE_P(Blocks, SwarmTest, testing::Range(0, kBlocks));

TEST(ReplayTest, ASeedGivesTheSameTraceAgainAndNoOtherDoes) {
  std::vector<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const uint64_t hash = RunSeed(seed).hash;
    EXPECT_EQ(RunSeed(seed).hash, hash) << "seed " << seed;
    EXPECT_EQ(RunSeed(seed, false, Focus::kRepeats).hash,
              RunSeed(seed, false, Focus::kRepeats).hash)
        << "seed " << seed << " of repeats";
    for (uint64_t other : hashes) EXPECT_NE(other, hash) << "seed " << seed;
    hashes.push_back(hash);
  }
}

}  // namespace
}  // namespace covey
