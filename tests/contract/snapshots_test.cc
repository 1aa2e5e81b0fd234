// Goal: a rank that has fallen out of the log goes on from a snapshot that another one gives
// between two of its steps, and has then what all have; it is told when nobody is left.
// Method: ranks as threads; a model that says which versions were applied, in which order. Versions
// are counted, not seconds.
#include <algorithm>
#include <atomic>
#include <map>

#include "tests/contract/round_student.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int64_t kSteps = 60;

class SnapshotsTest : public testing::TestWithParam<Place> {
 protected:
  int size() const { return GetParam().size; }
};

// The last rank is not there until the others are far beyond the log, twice.
TEST_P(SnapshotsTest, WhoHasFallenOutOfTheLogGoesOnFromOne) {
  std::atomic<int64_t> version{0};
  std::vector<std::map<int64_t, std::vector<double>>> seen(static_cast<size_t>(size()));
  std::atomic<int> given{0};
  std::atomic<bool> late_is_done{false};
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, size(), runtime, "eager:admit=solo,log=4");
    const bool late = rank == size() - 1;
    for (int64_t step = 1; late ? step <= 20 : step <= kSteps || !late_is_done.load(); ++step) {
      if (late && step % 10 == 0) {
        const int64_t enough = std::max(student.applied, version.load()) + 12;
        while (version.load() < enough || student.executed() < enough) {
          student.GiveIfAsked();  // it may have been ahead
          std::this_thread::yield();
        }
      }
      student.Publish();
      ASSERT_EQ(student.Wait(), COVEY_OK) << student.error().message;
      ASSERT_EQ(student.Apply(), COVEY_OK) << student.error().message;
      if (rank == 0) version = student.applied;
    }
    if (late) late_is_done = true;
    EXPECT_GE(student.taken, late ? 2 : 0);
    ASSERT_EQ(student.Finish(), COVEY_OK) << student.error().message;
    EXPECT_EQ(student.applied, student.executed());
    given += student.given;
    seen[static_cast<size_t>(rank)] = std::move(student.seen);
  });
  EXPECT_GE(given.load(), 2);
  // What the late rank has had, at whatever version, the first has had too; and the end.
  for (const auto& other : seen) {
    for (const auto& [at, model] : other) {
      const auto found = seen[0].find(at);
      EXPECT_TRUE(found == seen[0].end() || found->second == model) << "version " << at;
    }
    ASSERT_EQ(other.rbegin()->first, seen[0].rbegin()->first);
    EXPECT_TRUE(other.rbegin()->second == seen[0].rbegin()->second);
  }
}

// The others are in finish() already, and wait for the one that needs what they have.
TEST_P(SnapshotsTest, RanksThatHaveFinishedGiveThemToo) {
  if (size() == 2) GTEST_SKIP() << "neither of two runs ahead before max_wait: 60 s here";
  std::atomic<int> ahead{0};
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    Student student(rank, size(), runtime, "eager:admit=solo,log=2");
    const bool late = rank == size() - 1;
    while (late && ahead.load() < size() - 1) std::this_thread::yield();
    for (int64_t step = 1; step <= (late ? 2 : 20); ++step) {
      student.Publish();
      ASSERT_EQ(student.Wait(), COVEY_OK) << student.error().message;
      ASSERT_EQ(student.Apply(), COVEY_OK) << student.error().message;
    }
    ++ahead;
    ASSERT_EQ(student.Finish(), COVEY_OK) << student.error().message;
    EXPECT_EQ(student.applied, student.executed());
    EXPECT_GE(student.taken, late ? 1 : 0);  // the others may fall behind too
  });
}

// One runs ahead alone: not before max_wait is over.
TEST_P(SnapshotsTest, ItIsSaidWhenNobodyIsLeft) {
  std::atomic<int> gone{0};
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    {
      Student student(rank, size(), runtime, "eager:admit=solo,log=2,max_wait=20ms");
      const bool late = rank == size() - 1;
      while (late && gone.load() < size() - 1) std::this_thread::yield();
      for (int64_t step = 1; rank == 0 && step <= 20; ++step) {
        student.Publish();
        ASSERT_EQ(student.Wait(), COVEY_OK) << student.error().message;
        ASSERT_EQ(student.Apply(), COVEY_OK) << student.error().message;
      }
      if (late) {
        while (student.executed() < 20) std::this_thread::yield();  // news of it take their time
        EXPECT_EQ(student.Apply(), COVEY_EXHAUSTED);
        const std::string message = student.error().message;
        EXPECT_NE(message.find("nobody is left"), message.npos) << message;
      }
    }
    ++gone;
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, SnapshotsTest,
                         testing::Values(Place{2, ""}, Place{3, ""}, Place{4, ""}));
INSTANTIATE_TEST_SUITE_P(OverNetwork, SnapshotsTest,
                         testing::Values(Place{2, kOverNetwork}, Place{3, kOverNetwork},
                                         Place{4, kOverNetwork}, Place{4, kOverNetwork, 2}));

}  // namespace
}  // namespace covey
