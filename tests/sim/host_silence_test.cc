// Ranks that run wait for silent ranks of other hosts for max_wait and a step, once for each
// silence, and not again when these are back; by gradients and by models.
//
// Method: seeds of a simulation in which time is exact (simulator/host_silence.h says what each may
// take). The table says the worst of all seeds. SIM_SEED=N takes that one alone, SIM_SEEDS=N so
// many, TEST_SLOW=1 (tools/test --slow) thirty times as many.
#include "tests/sim/simulator/host_silence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/sweep.h"

namespace covey {
namespace {

constexpr uint64_t kSeeds = kIsSanitized ? 1 : 6;  // of each method and fault
constexpr double kPerSecond = 1.0 / static_cast<double>(kSecond);

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class HostSilenceTest : public testing::TestWithParam<std::tuple<SilentMethod, SilentFault>> {};

TEST_P(HostSilenceTest, CostsOthersMaxWaitAndAStep) {
  const auto [method, fault] = GetParam();
  const uint64_t only = Number("SIM_SEED", 0),
                 many = kSeeds * (std::getenv("TEST_SLOW") == nullptr ? 1 : kTimesIfSlow);
  const uint64_t seeds = Number("SIM_SEEDS", many);
  SilenceVerdict worst;
  for (uint64_t seed = std::max<uint64_t>(only, 1); seed <= std::max(only, seeds); ++seed) {
    const SilenceVerdict verdict = RunHostSilence(seed, method, fault);
    EXPECT_EQ(verdict.failure, "") << "seed " << seed << ": " << verdict.swarm;
    worst.longest = std::max(worst.longest, verdict.longest);
    worst.lost = std::max(worst.lost, verdict.lost);
    worst.abandoned = std::max(worst.abandoned, verdict.abandoned);
    worst.terms = std::max(worst.terms, verdict.terms);
    EXPECT_GT(verdict.versions, 50u) << seed;
    if (only > 0) break;
  }
  std::printf("longest step %.3f s, lost in all %.3f s, attempts abandoned %d, last term %d\n",
              static_cast<double>(worst.longest) * kPerSecond,
              static_cast<double>(worst.lost) * kPerSecond, static_cast<int>(worst.abandoned),
              static_cast<int>(worst.terms));
}

INSTANTIATE_TEST_SUITE_P(
    Each, HostSilenceTest,
    testing::Combine(testing::Values(SilentMethod::kGradients, SilentMethod::kModels,
                                     SilentMethod::kDeltas),
                     testing::Values(SilentFault::kStop, SilentFault::kUnplug,
                                     SilentFault::kCutOneWay, SilentFault::kCutBothWays)));

TEST(HostSilenceAgainTest, ASeedGivesTheSameRunAgain) {
  RunTwice<SilenceVerdict>([](uint64_t seed) { return RunHostSilence(seed); }, 4);
}

}  // namespace
}  // namespace covey
