// The test of the mutants: a seed must fail, or the rule that one takes away is tested by nothing.
//
// Method: each seed runs in a process of its own, because a mutant may crash or never return. Seeds
// that have failed before, of the simulator or of this mutant, come first, then all from 1.
// SIM_BASE=N begins with N, without those. Control: with no mutant on, no seed fails.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/mutants/mutants.h"
#include "tests/sim/simulator/communicator_simulation.h"
#include "tests/sim/simulator/host_model_simulation.h"
#include "tests/sim/simulator/host_pairs_simulation.h"
#include "tests/sim/simulator/host_seeds.h"
#include "tests/sim/simulator/host_silence.h"
#include "tests/sim/simulator/host_simulation.h"
#include "tests/sim/simulator/model_simulation.h"
#include "tests/sim/simulator/neighbor_simulation.h"
#include "tests/sim/simulator/pair_simulation.h"
#include "tests/sim/simulator/plans.h"
#include "tests/sim/simulator/round_seeds.h"
#include "tests/sim/simulator/round_simulation.h"
#include "tests/sim/simulator/simulation.h"
#include "tests/sim/simulator/trainer_simulation.h"
#include "tests/sim/simulator/window_simulation.h"

namespace covey {
namespace {

constexpr uint64_t kMostSeeds = 3000;
constexpr uint64_t kMostRoundSeeds = 6000;  // they are short
constexpr uint64_t kMostPairSeeds = 12000;  // shorter still
constexpr uint64_t kControlSeeds = 10;      // of each focus
constexpr uint64_t kSlowControlSeeds = 40;  // with TEST_SLOW=1
constexpr rlim_t kLongestSeconds = 60;      // of the processor, a seed
constexpr rlim_t kLongestOfAMutant = 3;     // it may never return; the longest seed takes 1 s
constexpr unsigned kLongestSleep = 60;      // nor do anything

std::string Run(uint64_t seed, const std::string& focus) {
  if (focus == "rounds") return RunRounds(seed).failure;
  if (focus == "models") return RunModels(seed).failure;
  if (focus == "hosts") return RunHosts(seed).failure;
  if (focus == "witnesses") return RunHostsWithWitness(seed).failure;
  if (focus == "host_models") return RunHostModels(seed).failure;
  if (focus == "host_silence") return RunHostSilence(seed).failure;
  if (focus == "pairs") return RunPairs(seed).failure;
  if (focus == "host_trainers") return RunHostTrainers(seed).failure;
  if (focus == "host_pairs") return RunHostPairs(seed).failure;
  if (focus == "neighbors") return RunNeighbors(seed).failure;
  if (focus == "communicators") return RunCommunicators(seed).failure;
  if (focus == "trainers") return RunTrainers(seed).failure;
  if (focus == "windows") return RunWindows(seed).failure;
  if (focus == "plans") return FindPlanThatDiffers();
  return RunSeed(seed, false, FocusNamed(focus)).failure;
}

// The failure of a seed; empty: everything held. `is_on`: of the mutant, if one is wanted.
std::string Outcome(uint64_t seed, const std::string& focus, bool* is_on) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    if (is_on != nullptr) *is_on = true;
    const rlim_t longest = is_on != nullptr ? kLongestOfAMutant : kLongestSeconds;
    const rlimit limit{longest, longest};
    setrlimit(RLIMIT_CPU, &limit);
    alarm(kLongestSleep);
    const std::string failure = Run(seed, focus);
    const bool told = write(ends[1], failure.data(), failure.size()) >= 0;
    _exit(failure.empty() && told ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[256];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof(part))) > 0;)
    text.append(part, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return text.substr(0, text.find('\n'));
}

std::vector<uint64_t> SeedsOf(const Mutant& mutant) {
  const std::string& focus = mutant.focus;
  std::vector<uint64_t> seeds;
  const char* base = std::getenv("SIM_BASE");
  if (base == nullptr) {
    seeds = mutant.seeds;
    if (focus == "rounds")
      seeds.insert(seeds.end(), std::begin(kRoundSeeds), std::end(kRoundSeeds));
    if (focus == "hosts") seeds.insert(seeds.end(), std::begin(kHostSeeds), std::end(kHostSeeds));
  }
  const bool in_rounds = focus == "rounds" || focus == "hosts" || focus == "witnesses";
  const uint64_t most = in_rounds          ? kMostRoundSeeds
                        : focus == "pairs" ? kMostPairSeeds
                                           : kMostSeeds;
  const uint64_t first = base == nullptr ? 1 : std::strtoull(base, nullptr, 10);
  for (uint64_t seed = first; seed < first + most; ++seed) seeds.push_back(seed);
  return seeds;
}

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsCaught) {
  const Mutant& mutant = GetParam();
  const std::vector<uint64_t> seeds = SeedsOf(mutant);
  for (const uint64_t seed : seeds) {
    const std::string outcome = Outcome(seed, mutant.focus, mutant.is_on);
    if (outcome.empty()) continue;
    std::printf("caught by seed %d: %s\n", static_cast<int>(seed), outcome.c_str());
    RecordProperty("seeds", static_cast<int>(seed));
    return;
  }
  FAIL() << seeds.size() << " seeds found nothing wrong";
}

// Of MUTANT_FOCI, where that is set: the program may lack what the others simulate.
bool IsWanted(const std::string& focus) {
  const char* foci = std::getenv("MUTANT_FOCI");
  if (foci == nullptr) return true;
  std::istringstream words(foci);
  return std::find(std::istream_iterator<std::string>(words), {}, focus) !=
         std::istream_iterator<std::string>();
}

std::vector<Mutant> WantedMutants() {
  std::vector<Mutant> wanted;
  for (const Mutant& mutant : kMutants)
    if (IsWanted(mutant.focus)) wanted.push_back(mutant);
  return wanted;
}

INSTANTIATE_TEST_SUITE_P(Each, MutantTest, testing::ValuesIn(WantedMutants()),
                         [](const auto& each) { return each.param.name; });

class ControlTest : public testing::TestWithParam<std::string> {};

TEST_P(ControlTest, WithoutAMutantNothingIsCaught) {
  const bool is_slow = std::getenv("TEST_SLOW") != nullptr;
  for (uint64_t seed = 1; seed <= (is_slow ? kSlowControlSeeds : kControlSeeds); ++seed)
    EXPECT_EQ(Outcome(seed, GetParam(), nullptr), "") << "seed " << seed;
}

std::set<std::string> Foci() {
  std::set<std::string> foci;
  for (const Mutant& mutant : WantedMutants()) foci.insert(mutant.focus);
  return foci;
}

INSTANTIATE_TEST_SUITE_P(Each, ControlTest, testing::ValuesIn(Foci()),
                         [](const auto& each) { return each.param; });

}  // namespace

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }

}  // namespace covey
