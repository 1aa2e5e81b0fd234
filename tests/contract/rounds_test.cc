// Goal: rounds through the C API, between runtimes of their own over real shared memory: sums are
// right and alike, each step counts once, who is late waits for nobody and is waited for by nobody,
// and wrong use is refused by sentences that say why.
// Method: ranks as threads; whole numbers that differ by rank, step and element, so that a sum says
// what went into it; a record is checked against the sum it comes with.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <numeric>

#include "core/base/rng.h"
#include "core/covey_rounds.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261121;

int64_t ValueOf(int rank, int64_t step, int64_t element) {
  return step * 1000 + rank * 100 + element % 97;
}

// Two spans, float32 and int64, of which one has several shards.
class Trainer {
 public:
  Trainer(int rank, int size, covey_runtime* runtime, const char* method, covey_op op = COVEY_SUM)
      : rank_(rank), size_(size), runtime_(runtime) {
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    config.name = "test";
    config.method = method;
    config.op = op;
    config.num_spans = 2;
    config.dtypes = kTypes;
    config.counts = kCounts;
    config.num_hypers = 1;
    code = covey_rounds_open(runtime, &config, &rounds_, &error);
  }
  Trainer(const Trainer&) = delete;
  ~Trainer() { covey_rounds_close(runtime_, rounds_); }

  int64_t Publish() {
    void* spans[2];
    EXPECT_EQ(covey_rounds_spans(runtime_, rounds_, spans, &error), COVEY_OK) << error.message;
    ++steps;
    for (int64_t i = 0; i < kCounts[0]; ++i)
      static_cast<float*>(spans[0])[i] = static_cast<float>(ValueOf(rank_, steps, i));
    for (int64_t i = 0; i < kCounts[1]; ++i)
      static_cast<int64_t*>(spans[1])[i] = ValueOf(rank_, steps, i);
    const double hyper = 0.5 * rank_;
    int64_t step = 0;
    EXPECT_EQ(covey_rounds_publish(runtime_, rounds_, &hyper, &step, &error), COVEY_OK);
    return step;
  }
  covey_code Wait(int64_t version, int64_t timeout_ns = -1) {
    return covey_rounds_wait(runtime_, rounds_, version, timeout_ns, &error);
  }
  covey_code Finish(int64_t timeout_ns = -1) {
    return covey_rounds_finish(runtime_, rounds_, timeout_ns, &error);
  }
  int64_t executed() { return covey_rounds_executed(runtime_, rounds_); }

  // Reads what is new; every sum must be that of its record, every step come once and in order.
  void ReadAll() {
    const int64_t last = executed();
    while (read < last) {
      std::vector<int64_t> first(static_cast<size_t>(size_)), until(first.size());
      double hyper = -1;
      covey_round_record record = COVEY_INIT(covey_round_record);
      record.first = first.data();
      record.last = until.data();
      record.hypers = &hyper;
      std::vector<float> floats(static_cast<size_t>(kCounts[0]));
      std::vector<int64_t> whole(static_cast<size_t>(kCounts[1]));
      void* spans[2] = {floats.data(), whole.data()};
      ASSERT_EQ(covey_rounds_read(runtime_, rounds_, ++read, spans, &record, &error), COVEY_OK)
          << error.message;
      ASSERT_EQ(record.version, read);
      ASSERT_EQ(hyper, record.leader < 0 ? 0 : 0.5 * record.leader);
      for (int64_t i : {int64_t{0}, int64_t{1}, kCounts[0] / 2, kCounts[0] - 1}) {
        const int64_t expected = Expected(first, until, i);
        ASSERT_EQ(floats[static_cast<size_t>(i)], static_cast<float>(expected))
            << "version " << read;
      }
      for (int64_t i = 0; i < kCounts[1]; ++i)
        ASSERT_EQ(whole[static_cast<size_t>(i)], Expected(first, until, i)) << "version " << read;
      for (size_t r = 0; r < first.size(); ++r) {
        if (first[r] == 0) continue;
        ASSERT_EQ(first[r], counted[r] + 1) << "version " << read << " rank " << r;
        counted[r] = until[r];
      }
      results.push_back(std::move(floats));
    }
  }

  covey_rounds rounds() const { return rounds_; }

  covey_code code;
  covey_error error = COVEY_INIT(covey_error);
  int64_t steps = 0, read = 0;
  std::vector<int64_t> counted = std::vector<int64_t>(64);  // by rank: steps that were in versions
  std::vector<std::vector<float>> results;                  // by version - 1

  static constexpr int64_t kCounts[2] = {100'000, 5};

 private:
  static constexpr covey_dtype kTypes[2] = {COVEY_FLOAT32, COVEY_INT64};

  static int64_t Expected(const std::vector<int64_t>& first, const std::vector<int64_t>& last,
                          int64_t element) {
    int64_t sum = 0;
    for (size_t r = 0; r < first.size(); ++r)
      for (int64_t step = first[r]; step > 0 && step <= last[r]; ++step)
        sum += ValueOf(static_cast<int>(r), step, element);
    return sum;
  }

  int rank_, size_;
  covey_runtime* runtime_;
  covey_rounds rounds_ = 0;
};

class RoundsTest : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

// Everybody waits for everybody: versions are steps, and all steps are fresh.
TEST_P(RoundsTest, WithAllItIsAnAllreduce) {
  constexpr int64_t kSteps = 10;
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Trainer trainer(rank, size(), runtime, "eager:admit=all");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    for (int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(trainer.Publish(), step);
      ASSERT_EQ(trainer.Wait(step), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      for (int r = 0; r < size(); ++r) EXPECT_EQ(trainer.counted[static_cast<size_t>(r)], step);
    }
    EXPECT_EQ(trainer.Finish(), COVEY_OK);
    EXPECT_EQ(trainer.executed(), kSteps);
  });
}

// Ranks of different speed; then nothing is left anywhere and all have read the same.
TEST_P(RoundsTest, SoloCountsEveryStepOnce) {
  constexpr int64_t kSteps = 40;
  std::vector<std::vector<std::vector<float>>> results(static_cast<size_t>(size()));
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Rng rng(kSeed + static_cast<uint64_t>(rank));
    Trainer trainer(rank, size(), runtime, "eager:admit=solo,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    for (int64_t step = 1; step <= kSteps; ++step) {
      for (uint64_t i = rng.Below(20); i > 0; --i) std::this_thread::yield();
      EXPECT_EQ(trainer.Publish(), step);
      ASSERT_EQ(trainer.Wait(step), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
    }
    ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    for (int r = 0; r < size(); ++r) EXPECT_EQ(trainer.counted[static_cast<size_t>(r)], kSteps);
    results[static_cast<size_t>(rank)] = std::move(trainer.results);
  });
  for (const auto& other : results) EXPECT_TRUE(other == results[0]) << "seed " << kSeed;
}

// After finish() all stand at the same version, and steps are numbered from there.
TEST_P(RoundsTest, TrainingGoesOnAfterFinish) {
  std::barrier meeting(size());
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Trainer trainer(rank, size(), runtime, "eager:admit=solo,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    for (int epoch = 1; epoch <= 3; ++epoch) {
      for (int64_t i = 0; i < 5 + rank; ++i) {
        ASSERT_EQ(trainer.Wait(trainer.Publish()), COVEY_OK) << trainer.error.message;
        trainer.ReadAll();
      }
      ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      EXPECT_EQ(trainer.counted[static_cast<size_t>(rank)], trainer.steps);
      trainer.steps = trainer.executed();
      std::fill(trainer.counted.begin(), trainer.counted.end(), trainer.steps);
      meeting.arrive_and_wait();  // nobody publishes before all have returned
    }
  });
}

// One rank publishes nothing until the others have gone far: nobody waits for it. What it publishes
// then, one step after the other without any wait, counts as well.
TEST_P(RoundsTest, NobodyWaitsForOneThatIsLate) {
  constexpr int64_t kSteps = 30;
  std::atomic<int> ahead{0};
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Trainer trainer(rank, size(), runtime, "eager:admit=solo,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    const bool late = rank == size() - 1;
    while (late && ahead.load() < size() - 1) std::this_thread::yield();
    for (int64_t step = 1; step <= kSteps; ++step) {
      trainer.Publish();
      ASSERT_EQ(trainer.Wait(step), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
    }
    EXPECT_EQ(trainer.executed(), kSteps);
    ++ahead;
    ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    for (int r = 0; r < size(); ++r) EXPECT_EQ(trainer.counted[static_cast<size_t>(r)], kSteps);
    // Steps 1 to 30 of the late rank came together after all others had finished.
    EXPECT_EQ(trainer.executed(), size() > 1 ? kSteps + 1 : kSteps);
  });
}

TEST_P(RoundsTest, AverageDividesByTheRecordsDivisor) {
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Trainer trainer(rank, size(), runtime, "eager:admit=all", COVEY_AVERAGE);
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    trainer.Publish();
    ASSERT_EQ(trainer.Wait(1), COVEY_OK);
    std::vector<float> floats(static_cast<size_t>(Trainer::kCounts[0]));
    void* spans[2] = {floats.data(), nullptr};
    covey_round_record record = COVEY_INIT(covey_round_record);
    ASSERT_EQ(covey_rounds_read(runtime, trainer.rounds(), 1, spans, &record, &trainer.error),
              COVEY_OK);
    EXPECT_EQ(record.divisor, size());
    float sum = 0;
    for (int r = 0; r < size(); ++r) sum += static_cast<float>(ValueOf(r, 1, 3));
    EXPECT_EQ(floats[3], sum * (1.0f / static_cast<float>(size())));
    EXPECT_EQ(trainer.Finish(), COVEY_OK);
  });
}

// A rank that leaves, and one whose runtime ends, are waited for no longer.
TEST_P(RoundsTest, WhoLeavesIsNotWaitedFor) {
  RunRanks(size(), "", [&](int rank, covey_runtime*& runtime) {
    Trainer trainer(rank, size(), runtime, "eager:admit=all");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    trainer.Publish();
    ASSERT_EQ(trainer.Wait(1), COVEY_OK) << trainer.error.message;
    if (rank % 2 == 1) return;
    trainer.Publish();
    ASSERT_EQ(trainer.Wait(2), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    EXPECT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, RoundsTest, testing::Values(1, 2, 3, 4));

TEST(RoundsRefusalTest, DifferencesAreNamedOnEveryRank) {
  RunRanks(3, "", [](int rank, covey_runtime*& runtime) {
    const char* method = rank == 1 ? "eager:admit=2" : "eager:admit=solo";
    const Trainer trainer(rank, 3, runtime, method);
    EXPECT_EQ(trainer.code, COVEY_MISMATCH);
    const std::string message = trainer.error.message;
    EXPECT_NE(message.find("rank 0 has method eager:admit=solo,grace=0s,log=16"), message.npos)
        << message;
    EXPECT_NE(message.find("rank 1 has method eager:admit=2"), message.npos) << message;
    const Trainer again(rank, 3, runtime, "eager:admit=solo");
    EXPECT_EQ(again.code, COVEY_OK) << again.error.message;
  });
}

TEST(RoundsRefusalTest, NoRoomIsSaidOnEveryRank) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    const covey_dtype dtype = COVEY_FLOAT32;
    const int64_t count = int64_t{1} << 32;
    config.name = "large";
    config.method = "eager";
    config.num_spans = 1;
    config.dtypes = &dtype;
    config.counts = &count;
    covey_rounds rounds = 0;
    covey_error error = COVEY_INIT(covey_error);
    EXPECT_EQ(covey_rounds_open(runtime, &config, &rounds, &error), COVEY_EXHAUSTED) << rank;
    EXPECT_NE(std::string(error.message).find("COVEY_ARENA_BYTES"), std::string::npos);
  });
}

// Four gigabytes of address space each time: twenty of them are more than there is.
TEST(RoundsMemoryTest, BlocksAreGivenBackOnceAllHaveLeft) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    const covey_dtype dtype = COVEY_FLOAT32;
    const int64_t count = int64_t{1} << 28;
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    config.name = "again";
    config.method = "eager:admit=solo,log=1";
    config.num_spans = 1;
    config.dtypes = &dtype;
    config.counts = &count;
    for (int i = 0; i < 20; ++i) {
      covey_rounds rounds = 0;
      covey_error error = COVEY_INIT(covey_error);
      ASSERT_EQ(covey_rounds_open(runtime, &config, &rounds, &error), COVEY_OK)
          << "rank " << rank << " time " << i << ": " << error.message;
      covey_rounds_close(runtime, rounds);
    }
  });
}

TEST(RoundsRefusalTest, WrongUseIsRefused) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    for (const char* method : {"allreduce", "eager:admit=3", "eager:admit=0", "eager:admit=x",
                               "eager:log=0", "eager:grace=5", "eager:H=1"}) {
      const Trainer wrong(rank, 2, runtime, method);
      EXPECT_EQ(wrong.code, COVEY_INVALID_ARGUMENT) << method;
    }
    Trainer trainer(rank, 2, runtime, "eager:admit=all,log=2");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    EXPECT_EQ(trainer.Wait(1, 1000), COVEY_TIMEOUT);
    covey_error* error = &trainer.error;
    const covey_rounds rounds = trainer.rounds();
    EXPECT_EQ(covey_rounds_read(runtime, rounds, 1, nullptr, nullptr, error),
              COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_rounds_publish(runtime, rounds, nullptr, nullptr, error),
              COVEY_INVALID_ARGUMENT);
    for (int64_t step = 1; step <= 4; ++step) {
      trainer.Publish();
      ASSERT_EQ(trainer.Wait(step), COVEY_OK);
    }
    EXPECT_EQ(covey_rounds_read(runtime, rounds, 2, nullptr, nullptr, error), COVEY_EXHAUSTED);
    EXPECT_EQ(covey_rounds_read(runtime, rounds, 4, nullptr, nullptr, error), COVEY_OK);
    EXPECT_EQ(covey_rounds_wait(runtime, 77, 1, 0, error), COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_rounds_executed(runtime, 77), -1);
    covey_rounds_close(runtime, 77);
    EXPECT_EQ(trainer.Finish(), COVEY_OK);
  });
}

TEST(RoundsRefusalTest, FinishNamesWhoIsMissing) {
  std::atomic<bool> asked{false};
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Trainer trainer(rank, 2, runtime, "eager:admit=solo");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    trainer.Publish();
    if (rank == 0) {
      EXPECT_EQ(trainer.Finish(1000), COVEY_TIMEOUT);
      EXPECT_NE(std::string(trainer.error.message).find("rank 1"), std::string::npos);
      asked = true;
    }
    while (!asked.load()) std::this_thread::yield();
    EXPECT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    EXPECT_EQ(trainer.counted[0], 1);
    EXPECT_EQ(trainer.counted[1], 1);
  });
}

}  // namespace
}  // namespace covey
