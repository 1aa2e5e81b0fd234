// Many seeds of a simulator, one after the other: SIM_SEED=N takes that one alone, SIM_BASE=N
// begins elsewhere, SIM_SEEDS=N takes so many, TEST_SLOW=1 (tools/test --slow) thirty times as
// many.
#ifndef COVEY_TESTS_SIM_SWEEP_H_
#define COVEY_TESTS_SIM_SWEEP_H_

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace covey {

// Whether a sanitizer runs along: seeds take longer then, and a test takes fewer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

inline constexpr uint64_t kTimesIfSlow = 60;  // times as many seeds by tools/test --slow

// Something that the verdict on a seed counts.
template <typename Verdict>
struct Count {
  const char* what;
  uint64_t Verdict::*of;
  uint64_t seeds = 60;  // it is to come up more than once in so many seeds; 0: it need not
};

// Everything holds in `seeds` seeds, and they bring up what they are for.
template <typename Verdict>
void Sweep(uint64_t seeds, Verdict (*run)(uint64_t), const std::vector<Count<Verdict>>& counts) {
  const char* only = std::getenv("SIM_SEED");
  const char* base = std::getenv("SIM_BASE");
  const char* begin = only != nullptr ? only : base != nullptr ? base : "1";
  if (std::getenv("TEST_SLOW") != nullptr) seeds *= kTimesIfSlow;
  if (const char* many = std::getenv("SIM_SEEDS")) seeds = std::strtoull(many, nullptr, 10);
  const uint64_t first = std::strtoull(begin, nullptr, 10);
  const uint64_t last = only == nullptr ? first + seeds - 1 : first;
  Verdict sum;
  for (uint64_t seed = first; seed <= last && !testing::Test::HasFailure(); ++seed) {
    const Verdict verdict = run(seed);
    EXPECT_EQ(verdict.failure, "")
        << "seed " << seed << " (replay it with SIM_SEED=" << seed << "): " << verdict.swarm;
    for (const Count<Verdict>& count : counts) sum.*count.of += verdict.*count.of;
  }
  std::printf("seeds %d to %d", static_cast<int>(first), static_cast<int>(last));
  for (const auto& [what, of, often] : counts)
    std::printf(", %s: %d", what, static_cast<int>(sum.*of));
  std::printf("\n");
  if (testing::Test::HasFailure() || only != nullptr) return;
  for (const auto& [what, of, often] : counts) {
    if (often == 0) continue;
    EXPECT_GT(sum.*of, seeds / often) << what;
  }
}

// One seed is one run, whenever it is taken.
template <typename Verdict>
void RunTwice(Verdict (*run)(uint64_t), uint64_t seeds = 20) {
  for (uint64_t seed = 1; seed <= (kIsSanitized ? 4 : seeds); ++seed)
    EXPECT_EQ(run(seed).hash, run(seed).hash) << "seed " << seed;
}

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SWEEP_H_
