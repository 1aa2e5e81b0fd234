// Whatever ranks stop, die or dawdle wherever: versions of models are the means they say they are,
// every rank gets the one that is right for it, and nobody is held up for longer than max_wait.
//
// Method: seeds of the simulator of rounds of models (tests/sim/simulator/model_simulation.h says
// what is checked). SIM_SEED=N bazel run //tests:sim/models_test repeats one; SIM_BASE=N begins
// elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/simulator/model_simulation.h"

namespace covey {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 200;
#else
constexpr uint64_t kSeeds = 3000;
#endif

void Add(const ModelVerdict& one, ModelVerdict* sum) {
  sum->versions += one.versions;
  sum->passive += one.passive;
  sum->again += one.again;
  sum->late += one.late;
  sum->old += one.old;
  sum->syncs += one.syncs;
  sum->finals += one.finals;
  sum->stopped += one.stopped;
  sum->killed += one.killed;
  sum->overdue += one.overdue;
  sum->returned += one.returned;
  sum->gave_up += one.gave_up;
  sum->equal += one.equal;
  sum->newer += one.newer;
  sum->jumps += one.jumps;
  sum->anew += one.anew;
}

TEST(ModelsTest, EverythingHolds) {
  const char* only = std::getenv("SIM_SEED");
  const char* base = std::getenv("SIM_BASE");
  const char* begin = only != nullptr ? only : base != nullptr ? base : "1";
  const uint64_t first = std::strtoull(begin, nullptr, 10);
  const uint64_t last = only == nullptr ? first + kSeeds - 1 : first;
  ModelVerdict sum;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    const ModelVerdict verdict = RunModels(seed);
    EXPECT_EQ(verdict.failure, "")
        << "seed " << seed << " (replay it with SIM_SEED=" << seed << "): " << verdict.swarm;
    Add(verdict, &sum);
  }
  const struct {
    const char* what;
    uint64_t count;
  } counts[] = {{"versions", sum.versions}, {"of all", sum.syncs},      {"final", sum.finals},
                {"passive", sum.passive},   {"again", sum.again},       {"late", sum.late},
                {"too old", sum.old},       {"stopped", sum.stopped},   {"killed", sum.killed},
                {"overdue", sum.overdue},   {"returned", sum.returned}, {"gave up", sum.gave_up},
                {"equal ends", sum.equal},  {"newer", sum.newer},       {"jumps", sum.jumps},
                {"begun anew", sum.anew}};
  for (const auto& [what, count] : counts) std::printf("%s: %d\n", what, static_cast<int>(count));
  if (HasFailure() || only != nullptr) return;
  // The seeds bring up what they are for.
  for (const auto& [what, count] : counts) EXPECT_GT(count, kSeeds / 60) << what;
}

TEST(ModelsTest, ASeedGivesTheSameRunAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(RunModels(seed).hash, RunModels(seed).hash) << "seed " << seed;
}

}  // namespace
}  // namespace covey
