// Goal: rounds over a network go on without a rank that is stopped or dead, whoever that is, while
// a majority of ranks runs; who comes back has in the end what all have; without a majority nobody
// goes on, and all do once there is one.
// Method: ranks as threads over a network that stops a rank between two messages. Versions are
// counted, not seconds.
#include <atomic>

#include "tests/contract/round_student.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int64_t kBefore = 5;  // steps of all
constexpr int64_t kLog = 4;
constexpr const char* kMethod = "eager:admit=all,max_wait=20ms,log=4";

// Of so many ranks this one is stopped, or killed.
struct Stop {
  int size, rank;
};
void PrintTo(const Stop& stop, std::ostream* out) {
  *out << "rank " << stop.rank << " of " << stop.size;
}

class HostsTest : public testing::TestWithParam<Stop> {
 protected:
  int size() const { return GetParam().size; }
  int stopped() const { return GetParam().rank; }
};

void Train(Student* student) {
  student->Publish();
  ASSERT_EQ(student->Wait(), COVEY_OK) << student->error().message;
  ASSERT_EQ(student->Apply(), COVEY_OK) << student->error().message;
}

void FinishAll(Student* student) {
  covey_code code = COVEY_TIMEOUT;
  while (code == COVEY_TIMEOUT) code = student->Finish();
  ASSERT_EQ(code, COVEY_OK) << student->error().message;
  EXPECT_EQ(student->applied, student->executed());
}

// The others go beyond the log of the one that is stopped: it goes on from a snapshot of theirs.
TEST_P(HostsTest, WhoIsStoppedHoldsUpNobodyAndCatchesUp) {
  std::atomic<int> ahead{0};
  std::vector<std::map<int64_t, std::vector<double>>> seen(static_cast<size_t>(size()));
  RunRanks(size(), kOverNetwork, [&](int rank, covey_runtime*& runtime) {
    Student student(rank, size(), runtime, kMethod);
    for (int64_t step = 1; step <= kBefore; ++step) Train(&student);
    const int64_t enough = student.applied + 5 * kLog;
    if (rank == stopped()) {
      ThreadNetwork::Current()->SetStopped(rank, true);
      while (ahead.load() < size() - 1) std::this_thread::yield();
      ThreadNetwork::Current()->SetStopped(rank, false);
      Train(&student);
    } else {
      while (student.applied < enough) Train(&student);
      ++ahead;
    }
    FinishAll(&student);
    EXPECT_GE(student.taken, rank == stopped() ? 1 : 0);
    seen[static_cast<size_t>(rank)] = std::move(student.seen);
  });
  const auto& first = seen[stopped() == 0 ? 1 : 0];
  for (const auto& other : seen) {
    for (const auto& [at, model] : other) {
      const auto found = first.find(at);
      EXPECT_TRUE(found == first.end() || found->second == model) << "version " << at;
    }
    ASSERT_EQ(other.rbegin()->first, first.rbegin()->first);
    EXPECT_TRUE(other.rbegin()->second == first.rbegin()->second);
  }
}

TEST_P(HostsTest, WhoIsKilledHoldsUpNobody) {
  std::atomic<int> done{0};
  const std::string settings = std::string(kOverNetwork) + "\n" + kLooksForLosses;
  RunRanks(size(), settings.c_str(), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, size(), runtime, kMethod);
    for (int64_t step = 1; step <= kBefore; ++step) Train(&student);
    if (rank == stopped()) {
      ThreadNetwork::Current()->Kill(rank);
      while (done.load() < size() - 1) std::this_thread::yield();
      return;
    }
    const int64_t enough = student.applied + 5 * kLog;
    while (student.applied < enough) Train(&student);
    FinishAll(&student);
    ++done;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostsTest,
                         testing::Values(Stop{3, 0}, Stop{3, 2}, Stop{4, 0}, Stop{4, 3},
                                         Stop{5, 1}));

// Of two ranks the second waits for the first, longer than max_wait, and loses nothing.
TEST(HostsMajorityTest, OfTwoTheSecondWaitsForTheFirst) {
  std::atomic<bool> has_begun{false}, has_waited{false};
  RunRanks(2, kOverNetwork, [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, 2, runtime, kMethod);
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    ASSERT_EQ(trainer.Wait(trainer.Publish()), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    if (rank == 0) {
      while (!has_begun.load()) std::this_thread::yield();
      ThreadNetwork::Current()->SetStopped(0, true);
      while (!has_waited.load()) std::this_thread::yield();
      ThreadNetwork::Current()->SetStopped(0, false);
    } else {
      has_begun = true;
      const int64_t before = trainer.executed();
      const int64_t step = trainer.Publish();
      EXPECT_EQ(trainer.Wait(step, 3'000'000'000), COVEY_TIMEOUT);
      EXPECT_LE(trainer.executed(), before + 1);  // one that rank 0 had decided may be under way
      has_waited = true;
      ASSERT_EQ(trainer.Wait(step), COVEY_OK) << trainer.error.message;
    }
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = trainer.Finish();
    ASSERT_EQ(code, COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    EXPECT_EQ(trainer.total[0], 1);
    EXPECT_EQ(trainer.total[1], 2);
  });
}

// Rounds are opened and closed again and again: what is sent to earlier ones disturbs no later one.
TEST(HostsOpenTest, OneAfterTheOther) {
  RunRanks(3, kOverNetwork, [](int rank, covey_runtime*& runtime) {
    for (int time = 0; time < 10; ++time) {
      RoundTrainer trainer(rank, 3, runtime, "eager:admit=solo,log=200");
      ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
      for (int step = 0; step < 3; ++step) {
        ASSERT_EQ(trainer.Wait(trainer.Publish()), COVEY_OK) << trainer.error.message;
        trainer.ReadAll();
      }
      if (time % 2 == 0) continue;  // with what is not read yet
      ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      for (int r = 0; r < 3; ++r) EXPECT_EQ(trainer.total[static_cast<size_t>(r)], 3);
    }
  });
}

}  // namespace
}  // namespace covey
