// Goal: rounds through the C API, between runtimes of their own over real shared memory: sums are
// right and alike, each step counts once, who is late waits for nobody and is waited for by nobody,
// and wrong use is refused by sentences that say why.
// Method: ranks as threads; whole numbers that differ by rank, step and element, so that a sum says
// what went into it; a record is checked against the sum it comes with.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "core/base/rng.h"
#include "tests/contract/parsed_method.h"
#include "tests/contract/round_trainer.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261121;

class RoundsTest : public testing::TestWithParam<Place> {
 protected:
  int size() const { return GetParam().size; }
};

// Everybody waits for everybody: versions are steps, and all steps are fresh.
TEST_P(RoundsTest, WithAllItIsAnAllreduce) {
  constexpr int64_t kSteps = 10;
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=all");
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
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    Rng rng(kSeed + static_cast<uint64_t>(rank));
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,log=200");
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

// One drawn rank lets a version fire: it is fresh there, and all draw the same.
TEST_P(RoundsTest, OneThatIsDrawnSuffices) {
  constexpr int64_t kSteps = 30;
  for (const char* method : {"eager:admit=majority,log=200", "eager:admit=first2,log=200,seed=9"}) {
    RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
      Rng rng(kSeed + static_cast<uint64_t>(rank));
      RoundTrainer trainer(rank, size(), runtime, method);
      ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
      for (int64_t step = 1; step <= kSteps; ++step) {
        for (uint64_t i = rng.Below(20); i > 0; --i) std::this_thread::yield();
        ASSERT_EQ(trainer.Wait(trainer.Publish()), COVEY_OK) << trainer.error.message;
        trainer.ReadAll();
      }
      ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      for (int r = 0; r < size(); ++r) EXPECT_EQ(trainer.counted[static_cast<size_t>(r)], kSteps);
    });
  }
}

// After finish() all stand at the same version, and steps are numbered from there.
TEST_P(RoundsTest, TrainingGoesOnAfterFinish) {
  std::barrier meeting(size());
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,log=200");
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
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,log=200");
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
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=all", COVEY_AVERAGE);
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    trainer.Publish();
    ASSERT_EQ(trainer.Wait(1), COVEY_OK);
    std::vector<float> floats(static_cast<size_t>(RoundTrainer::kCounts[0]));
    void* spans[2] = {floats.data(), nullptr};
    covey_round_record record = COVEY_INIT(covey_round_record);
    ASSERT_EQ(covey_rounds_read(runtime, trainer.rounds(), 1, spans, &record, &trainer.error),
              COVEY_OK);
    EXPECT_EQ(record.divisor, size());
    float sum = 0;
    for (int r = 0; r < size(); ++r) sum += static_cast<float>(ValueOf(r, 1, 3));
    EXPECT_EQ(floats[3], sum / static_cast<float>(size()));
    EXPECT_EQ(trainer.Finish(), COVEY_OK);
  });
}

// A rank that leaves, and one whose runtime ends, are waited for no longer.
TEST_P(RoundsTest, WhoLeavesIsNotWaitedFor) {
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=all");
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

// With max_wait it is bounded how long one that is missing is waited for, also where all are
// wanted; the record names it, it comes back, and its steps count once.
TEST_P(RoundsTest, WhoIsMissingIsWaitedForOnce) {
  std::atomic<int> ahead{0};
  constexpr int64_t kSteps = 12;
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=all,max_wait=20ms,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    const auto last = static_cast<size_t>(size() - 1);
    for (int64_t step = 1; step <= kSteps; ++step) {
      // Only when all the others are done.
      if (rank == size() - 1 && step == 4)
        while (ahead.load() < size() - 1) std::this_thread::yield();
      ASSERT_EQ(trainer.Wait(trainer.Publish()), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      if (rank == size() - 1 || step < 4) continue;
      EXPECT_EQ(trainer.overdue[last], 3) << "step " << step;
    }
    ++ahead;
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = trainer.Finish();
    ASSERT_EQ(code, COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    for (int r = 0; r < size(); ++r)
      EXPECT_EQ(trainer.total[static_cast<size_t>(r)], kSteps) << "of rank " << r << " at " << rank;
  });
}

// finish() waits for max_wait, names who is missing, and leaves nothing of those that are there.
TEST_P(RoundsTest, FinishNamesWhoIsMissing) {
  std::atomic<int> told{0};
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,max_wait=20ms,log=200");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    trainer.Publish();
    if (rank == size() - 1) {
      while (told.load() < size() - 1) std::this_thread::yield();
    } else {
      EXPECT_EQ(trainer.Finish(), COVEY_TIMEOUT);
      const std::string message = trainer.error.message;  // "for rank 2: ", or "for rank 0, 2: "
      EXPECT_NE(message.find(" " + std::to_string(size() - 1) + ": "), message.npos) << message;
      trainer.ReadAll();
      EXPECT_EQ(trainer.counted[static_cast<size_t>(rank)], 1);
      ++told;
    }
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = trainer.Finish();
    ASSERT_EQ(code, COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    for (int r = 0; r < size(); ++r) EXPECT_EQ(trainer.counted[static_cast<size_t>(r)], 1);
  });
}

// With max_staleness the others wait for who is too far behind, and its next step lets them go on.
TEST_P(RoundsTest, WhoIsTooFarBehindIsWaitedFor) {
  std::atomic<int64_t> ahead{0};
  constexpr int64_t kSteps = 30;
  constexpr int64_t kMost = 3;
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,max_wait=3600s,log=200,L=3");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    const bool late = rank == size() - 1;
    for (int64_t step = 1; step <= kSteps; ++step) {
      // Only when another one waits for it.
      if (late && size() > 1)
        while (ahead.load() < step + kMost) std::this_thread::yield();
      trainer.Publish();
      if (!late && step > ahead.load()) ahead = step;
      ASSERT_EQ(trainer.Wait(step), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
      EXPECT_GE(trainer.executed(), step);
      if (late && step + kMost >= kSteps) break;
    }
    ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    EXPECT_GE(trainer.oldest, size() > 1 && !late ? 1 : 0);
    EXPECT_LE(trainer.oldest, kMost);
  });
}

// With progress=skip a rank that was late once is not late at its next step.
TEST_P(RoundsTest, WhoSkipsAheadIsNotLateForEver) {
  std::atomic<int> ahead{0};
  RunRanks(GetParam(), [&](int rank, covey_runtime*& runtime) {
    RoundTrainer trainer(rank, size(), runtime, "eager:admit=solo,log=200,progress=skip");
    ASSERT_EQ(trainer.code, COVEY_OK) << trainer.error.message;
    const bool late = rank == size() - 1;
    while (late && ahead.load() < size() - 1) std::this_thread::yield();
    trainer.skips_ahead = true;
    for (int i = 0; i < (late ? 1 : 20); ++i) {
      ASSERT_EQ(trainer.Wait(trainer.Publish()), COVEY_OK) << trainer.error.message;
      trainer.ReadAll();
    }
    ++ahead;
    if (late) {
      const int64_t before = trainer.read;
      EXPECT_EQ(trainer.Publish(), before + 1);
      ASSERT_EQ(trainer.Wait(before + 1), COVEY_OK) << trainer.error.message;
    }
    ASSERT_EQ(trainer.Finish(), COVEY_OK) << trainer.error.message;
    trainer.ReadAll();
    EXPECT_EQ(trainer.total[static_cast<size_t>(size() - 1)], 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, RoundsTest,
                         testing::Values(Place{1, ""}, Place{2, ""}, Place{3, ""}, Place{4, ""}));
INSTANTIATE_TEST_SUITE_P(OverNetwork, RoundsTest,
                         testing::Values(Place{1, kOverNetwork}, Place{2, kOverNetwork},
                                         Place{3, kOverNetwork}, Place{4, kOverNetwork},
                                         Place{4, kOverNetwork, 2}));

TEST(RoundsRefusalTest, DifferencesAreNamedOnEveryRank) {
  RunRanks(3, "", [](int rank, covey_runtime*& runtime) {
    const char* method = rank == 1 ? "eager:admit=2" : "eager:admit=solo";
    const RoundTrainer trainer(rank, 3, runtime, method);
    EXPECT_EQ(trainer.code, COVEY_MISMATCH);
    const std::string message = trainer.error.message;
    EXPECT_NE(message.find("rank 0 has method eager:admit=solo,grace=auto,max_wait=auto,log=auto"),
              message.npos)
        << message;
    EXPECT_NE(message.find("rank 1 has method eager:admit=2"), message.npos) << message;
    const RoundTrainer again(rank, 3, runtime, "eager:admit=solo");
    EXPECT_EQ(again.code, COVEY_OK) << again.error.message;
  });
}

TEST(RoundsRefusalTest, NoRoomIsSaidOnEveryRank) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    const covey_dtype dtype = COVEY_FLOAT32;
    const int64_t count = int64_t{1} << 32;
    config.name = "large";
    covey_error error = COVEY_INIT(covey_error);
    const ParsedMethod parsed("eager", &error);
    config.method = parsed.get();
    config.num_spans = 1;
    config.dtypes = &dtype;
    config.counts = &count;
    covey_rounds rounds = 0;
    EXPECT_EQ(covey_rounds_open(runtime, &config, &rounds, &error), COVEY_EXHAUSTED) << rank;
    EXPECT_NE(std::string(error.message).find("COVEY_ARENA_BYTES"), std::string::npos);
  });
}

TEST(RoundsRefusalTest, MoreThanTheMemoryLimitIsSaidOnEveryRankAndLessWorks) {
  RunRanks(3, "memory_limit=4MiB", [](int rank, covey_runtime*& runtime) {
    const RoundTrainer greedy(rank, 3, runtime, "eager:admit=solo,log=16384");
    EXPECT_EQ(greedy.code, COVEY_EXHAUSTED) << rank;
    const std::string message = greedy.error.message;
    EXPECT_NE(message.find("memory_limit is 4194304: lower log=, or raise COVEY_MEMORY_LIMIT"),
              message.npos)
        << message;
    const RoundTrainer modest(rank, 3, runtime, "eager:admit=solo,log=4");
    EXPECT_EQ(modest.code, COVEY_OK) << modest.error.message;
  });
}

// Four gigabytes of address space each time: twenty of them are more than there is.
TEST(RoundsMemoryTest, BlocksAreGivenBackOnceAllHaveLeft) {
  if (std::getenv("COVEY_ARENA_BYTES") != nullptr) GTEST_SKIP() << "not the arena of 16 GiB";
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    const covey_dtype dtype = COVEY_FLOAT32;
    const int64_t count = int64_t{1} << 28;
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    config.name = "again";
    covey_error error = COVEY_INIT(covey_error);
    const ParsedMethod parsed("eager:admit=solo,log=1", &error);
    config.method = parsed.get();
    config.num_spans = 1;
    config.dtypes = &dtype;
    config.counts = &count;
    for (int i = 0; i < 20; ++i) {
      covey_rounds rounds = 0;
      ASSERT_EQ(covey_rounds_open(runtime, &config, &rounds, &error), COVEY_OK)
          << "rank " << rank << " time " << i << ": " << error.message;
      covey_rounds_close(runtime, rounds);
    }
  });
}

TEST(RoundsRefusalTest, WrongUseIsRefused) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    for (const char* method : {"allreduce", "eager:admit=3", "eager:admit=0", "eager:admit=x",
                               "eager:log=0", "eager:L=0", "eager:grace=5", "eager:H=1"}) {
      const RoundTrainer wrong(rank, 2, runtime, method);
      EXPECT_EQ(wrong.code, COVEY_INVALID_ARGUMENT) << method;
    }
    RoundTrainer trainer(rank, 2, runtime, "eager:admit=all,log=2");
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
    RoundTrainer trainer(rank, 2, runtime, "eager:admit=solo");
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
