// The test of the mutants of engine, shared memory, queue, views and C API: the tests of these, run
// with the mutant on, must fail, or the rule that it takes away is tested by nothing.
//
// Method: this program holds the tests too, and starts itself with `--mutant=NAME` and a filter for
// each mutant: the variable is set before anything else runs. It is caught by a test that fails, by
// a crash, or by a standstill: hardly a thread runs, for kStandstill. Most mutants stand still, so
// kAtOnce are tried at once. Control: with no mutant on, all that these filters name passes, and
// stands still for less than kPatience.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tests/sim/mutants/mutants.h"

extern char** environ;

namespace covey {
namespace {

constexpr Time kLook = 50 * kMillisecond;
constexpr Time kStandstill = 2 * kSecond;
constexpr long kTicksOfIdle = 5;  // a second, of 100: what looks by itself now and then
constexpr Time kPatience = 60 * kSecond;
constexpr Time kLongest = 20 * kSecond;  // of what does not stand still, with a mutant on
constexpr size_t kAtOnce = 8;
constexpr int kMostTrials = 5;          // a wake-up that is lost sometimes is lost in one of them
constexpr rlim_t kLongestSeconds = 60;  // of the processor: a mutant may never return
constexpr const char* kOption = "--mutant=";

// Of a process: the ticks of the processor that it has had, and whether a thread of it runs.
struct Activity {
  long ticks = 0;
  bool runs = false;
};

// Looks at one process for a while.
struct Window {
  Time begin = 0;
  long ticks = 0;  // at its begin
  int looks = 0;
  int runs = 0;  // of the looks: found a thread that ran, or would if it were let
};

// The fields of a `stat` in /proc after the name, which may hold anything.
std::vector<std::string> FieldsOf(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  std::vector<std::string> fields;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return fields;
  for (size_t at = name_end + 2; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    fields.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

Activity ActivityOf(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  Activity activity;
  const std::vector<std::string> fields = FieldsOf(folder + "/stat");
  if (fields.size() < 13) return {.ticks = 0, .runs = true};
  activity.ticks = std::stol(fields[11]) + std::stol(fields[12]);
  DIR* tasks = opendir((folder + "/task").c_str());
  if (tasks == nullptr) return {.ticks = 0, .runs = true};
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::vector<std::string> own = FieldsOf(folder + "/task/" + task->d_name + "/stat");
    activity.runs |= !own.empty() && own[0] != "S";
  }
  closedir(tasks);
  return activity;
}

// Of the tests themselves, not of how this test is run: shards, filters, reports.
std::vector<char*> EnvironmentOfTests() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const bool is_ours = text.starts_with("TEST_TMPDIR=") || text.starts_with("TEST_SRCDIR=");
    if (is_ours ||
        !(text.starts_with("TEST") || text.starts_with("GTEST") || text.starts_with("XML_OUTPUT")))
      kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

class Trial {
 public:
  Trial(const std::string& mutant, const std::string& filter)
      : output_(memfd_create("output", MFD_CLOEXEC)) {
    std::string option = kOption + mutant, filters = "--gtest_filter=" + filter;
    std::string name = "mutants_test";
    char* arguments[] = {name.data(), option.data(), filters.data(), nullptr};
    const std::vector<char*> environment = EnvironmentOfTests();
    pid_ = fork();
    if (pid_ != 0) return;
    setpgid(0, 0);
    const rlimit limit{kLongestSeconds, kLongestSeconds};
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CPU, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(output_, STDOUT_FILENO);
    dup2(output_, STDERR_FILENO);
    execve("/proc/self/exe", arguments, environment.data());
    _exit(0);  // As if it had passed: not caught.
  }
  ~Trial() {
    kill(-pid_, SIGKILL);
    if (!ended_) waitpid(pid_, nullptr, 0);
    close(output_);
  }

  // Whether it is over, or lasts too long; once every kLook.
  bool IsOver(Time standstill, Time longest) {
    if (HasEnded()) return true;
    const Activity now = ActivityOf(pid_);
    if (window_.looks++ == 0) window_.ticks = now.ticks;
    window_.runs += now.runs ? 1 : 0;
    if (MonotonicNow() - begin_ > longest) {
      excess_ = "it does not end";
    } else if (MonotonicNow() - window_.begin >= standstill) {
      const auto idle_ticks = standstill / kSecond * kTicksOfIdle;
      if (now.ticks - window_.ticks <= idle_ticks && window_.runs * 5 <= window_.looks)
        excess_ = "it stands still";
      window_ = {.begin = MonotonicNow()};
    }
    return !excess_.empty();
  }

  // The outcome, once the trial is over; empty: all tests have passed.
  std::string Outcome() const {
    if (!excess_.empty()) return excess_;
    if (WIFSIGNALED(status_)) return "ended by signal " + std::to_string(WTERMSIG(status_));
    return WEXITSTATUS(status_) == 0 ? "" : "a test fails";
  }

  std::string Outcome(Time standstill, Time longest) {
    while (!IsOver(standstill, longest)) usleep(kLook / kMicrosecond);
    return Outcome();
  }

  std::string Output() const {
    std::string text;
    char part[4096];
    for (ssize_t got = 0;
         (got = pread(output_, part, sizeof(part), static_cast<off_t>(text.size()))) > 0;)
      text.append(part, static_cast<size_t>(got));
    return text;
  }

 private:
  bool HasEnded() {
    ended_ = ended_ || waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }

  int output_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  Time begin_ = MonotonicNow();
  Window window_{.begin = MonotonicNow()};
  std::string excess_;
};

// The line of the output that says what failed.
std::string FailureIn(const std::string& output) {
  const size_t at = output.find(": Failure\n");
  if (at == std::string::npos) return "";
  const size_t begin = output.rfind('\n', at);
  return output.substr(begin == std::string::npos ? 0 : begin + 1, 200);
}

bool SaysSkipped(const std::string& output) {
  return output.find("[  SKIPPED ]") != std::string::npos;
}

class MutantTest : public testing::TestWithParam<Mutant> {};

// The outcome of a mutant's last trial.
struct Fate {
  std::string outcome;
  std::string output;
};

// Whether the case of a mutant is in this run: filters and shards choose.
std::set<std::string> Chosen() {
  std::set<std::string> chosen;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    if (std::string(suite.name()) != "Each/MutantTest") continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = suite.GetTestInfo(j)->name();
      if (suite.GetTestInfo(j)->should_run()) chosen.insert(name.substr(name.find('/') + 1));
    }
  }
  return chosen;
}

// Tries them, again those that pass.
std::map<std::string, Fate> TryAll() {
  struct Running {
    const Mutant* mutant;
    int trials;
    std::unique_ptr<Trial> trial;
  };
  const std::set<std::string> chosen = Chosen();
  std::map<std::string, Fate> fates;
  std::list<Running> running;
  for (auto next = kMutants.begin(); next != kMutants.end() || !running.empty();) {
    if (next != kMutants.end() && running.size() < kAtOnce) {
      if (chosen.contains(next->name))
        running.push_back({&*next, 1, std::make_unique<Trial>(next->name, next->focus)});
      ++next;
      continue;
    }
    usleep(kLook / kMicrosecond);
    for (auto one = running.begin(); one != running.end();) {
      if (!one->trial->IsOver(kStandstill, kLongest)) {
        ++one;
      } else if (one->trial->Outcome().empty() && one->trials++ < kMostTrials) {
        one->trial = std::make_unique<Trial>(one->mutant->name, one->mutant->focus);
      } else {
        fates[one->mutant->name] = {one->trial->Outcome(), one->trial->Output()};
        one = running.erase(one);
      }
    }
  }
  return fates;
}

TEST_P(MutantTest, IsCaught) {
  static const std::map<std::string, Fate> fates = TryAll();
  const auto& [fate, output] = fates.at(GetParam().name);
  std::string outcome = fate;
  if (outcome.empty() && SaysSkipped(output)) {
    Trial control("", GetParam().focus);
    ASSERT_EQ(control.Outcome(kPatience, kPatience), "");
    if (SaysSkipped(control.Output()))
      GTEST_SKIP() << "what would catch it cannot run on this system:\n" << output;
    outcome = "refuses";  // what the test is of, which is skipped for that
  }
  ASSERT_NE(outcome, "") << "passed with the mutant on: " << GetParam().focus << "\n" << output;
  std::printf("caught, %s: %s\n", outcome.c_str(), FailureIn(output).c_str());
}

INSTANTIATE_TEST_SUITE_P(Each, MutantTest, testing::ValuesIn(kMutants),
                         [](const auto& each) { return each.param.name; });

std::vector<std::string> Filters() {
  std::set<std::string> filters;
  for (const Mutant& mutant : kMutants) filters.insert(mutant.focus);
  return {filters.begin(), filters.end()};
}

class ControlTest : public testing::TestWithParam<std::string> {};

TEST_P(ControlTest, WithoutAMutantAllPasses) {
  Trial trial("", GetParam());
  EXPECT_EQ(trial.Outcome(kPatience, kNever), "") << trial.Output();
  EXPECT_EQ(trial.Output().find(" 0 tests ran."), std::string::npos) << "no test has such a name";
}

INSTANTIATE_TEST_SUITE_P(Each, ControlTest, testing::ValuesIn(Filters()),
                         [](const auto& each) { return std::to_string(each.index); });

}  // namespace

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }

}  // namespace covey

int main(int argc, char** argv) {
  bool is_child = false;
  const std::string option = covey::kOption;
  for (int i = 1; i < argc; ++i) {
    const std::string argument(argv[i]);
    if (!argument.starts_with(option)) continue;
    is_child = true;
    for (const covey::Mutant& mutant : covey::kMutants)
      if (mutant.name == argument.substr(option.size())) *mutant.is_on = true;
  }
  testing::InitGoogleTest(&argc, argv);
  if (!is_child && testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = "Each/*";
  return RUN_ALL_TESTS();
}
