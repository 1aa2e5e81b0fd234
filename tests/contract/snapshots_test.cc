// Goal: a rank that has fallen out of the log goes on from a snapshot that another one gives
// between two of its steps, and has then what all have; it is told when nobody is left.
// Method: ranks as threads; a model that says which versions were applied, in which order. Versions
// are counted, not seconds.
#include <algorithm>
#include <atomic>
#include <map>

#include "tests/contract/round_trainer.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int64_t kSteps = 60;

// A model of a few pages, and how it is trained through the C API.
class Student {
 public:
  Student(int rank, int size, covey_runtime* runtime, const char* method)
      : trainer_(rank, size, runtime, method), runtime_(runtime) {
    EXPECT_EQ(trainer_.code, COVEY_OK) << trainer_.error.message;
  }

  void Publish() { step_ = trainer_.Publish(); }
  covey_code Wait() { return Serve(step_); }
  covey_code Finish() {
    covey_code code = Serve(COVEY_ROUNDS_FINISH);
    if (code == COVEY_OK) code = Apply();
    return code == COVEY_OK ? Serve(COVEY_ROUNDS_MEET) : code;
  }
  int64_t executed() { return trainer_.executed(); }

  // Until all that was made is applied. COVEY_OK, or why there was no snapshot.
  covey_code Apply() {
    std::vector<float> floats(static_cast<size_t>(Trainer::kCounts[0]));
    void* spans[2] = {floats.data(), nullptr};
    while (applied < executed()) {
      covey_code code =
          covey_rounds_read(runtime_, trainer_.rounds(), applied + 1, spans, nullptr, &error());
      if (code == COVEY_EXHAUSTED && (code = Recover()) == COVEY_OK) continue;
      if (code != COVEY_OK) return code;
      for (size_t i = 0; i < model.size(); ++i)
        model[i] = model[i] * 0.5 + static_cast<double>(floats[i % 90]);
      seen[++applied] = model;
    }
    GiveIfAsked();
    return COVEY_OK;
  }
  void GiveIfAsked() {
    if (covey_rounds_asked(runtime_, trainer_.rounds(), applied) != 0) Give();
  }

  covey_error& error() { return trainer_.error; }

  int64_t applied = 0;
  int given = 0, taken = 0;
  std::vector<double> model = std::vector<double>(5000);
  std::map<int64_t, std::vector<double>> seen;

 private:
  covey_code Serve(int64_t version) {
    for (;;) {
      covey_round_event event = COVEY_ROUND_TIME;
      const covey_code code =
          covey_rounds_serve(runtime_, trainer_.rounds(), version, applied, -1, &event, &error());
      if (code != COVEY_OK || event == COVEY_ROUND_DONE) return code;
      if (event == COVEY_ROUND_ASKED) Give();
      if (event != COVEY_ROUND_BEHIND) continue;
      if (const covey_code why = Apply(); why != COVEY_OK) return why;
    }
  }

  void Give() {
    const void* parts[] = {model.data(), model.data() + 1000};
    const int64_t lengths[] = {8000, static_cast<int64_t>(8 * (model.size() - 1000))};
    EXPECT_EQ(covey_rounds_give(runtime_, trainer_.rounds(), applied, parts, lengths, 2, &error()),
              COVEY_OK);
    ++given;
  }

  covey_code Recover() {
    for (;;) {
      covey_snapshot snapshot = COVEY_INIT(covey_snapshot);
      const covey_code code =
          covey_rounds_seek(runtime_, trainer_.rounds(), applied, -1, &snapshot, &error());
      if (code != COVEY_OK) return code;
      EXPECT_EQ(snapshot.length_bytes, static_cast<int64_t>(8 * model.size()));
      int32_t taken_now = 0;
      EXPECT_EQ(covey_rounds_take(runtime_, trainer_.rounds(), &snapshot, model.data(), &taken_now,
                                  &error()),
                COVEY_OK);
      if (taken_now == 0) continue;
      ++taken;
      applied = snapshot.version;
      seen[applied] = model;
      return COVEY_OK;
    }
  }

  Trainer trainer_;
  covey_runtime* runtime_;
  int64_t step_ = 0;
};

class SnapshotsTest : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

// The last rank is not there until the others are far beyond the log, twice.
TEST_P(SnapshotsTest, WhoHasFallenOutOfTheLogGoesOnFromOne) {
  std::atomic<int64_t> version{0};
  std::vector<std::map<int64_t, std::vector<double>>> seen(static_cast<size_t>(size()));
  std::atomic<int> given{0};
  std::atomic<bool> late_is_done{false};
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Student student(rank, size(), runtime, "eager:admit=solo,log=4");
    const bool late = rank == size() - 1;
    for (int64_t step = 1; late ? step <= 20 : step <= kSteps || !late_is_done.load(); ++step) {
      if (late && step % 10 == 0) {
        const int64_t enough = std::max(student.applied, version.load()) + 12;
        while (version.load() < enough) {
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
  if (size() == 2) GTEST_SKIP() << "nobody runs ahead alone, but after max_wait: 60 s here";
  std::atomic<int> ahead{0};
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
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
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
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
        EXPECT_EQ(student.Apply(), COVEY_EXHAUSTED);
        const std::string message = student.error().message;
        EXPECT_NE(message.find("nobody is left"), message.npos) << message;
      }
    }
    ++gone;
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, SnapshotsTest, testing::Values(2, 3, 4));

}  // namespace
}  // namespace covey
