// Trainings through the C API, ranks as threads over real shared memory: the models of the methods'
// formulas, and what a wrong call says.
#include "core/api/covey_trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

// By the formulas, of one element: gradients of all at `averaged` steps, else own ones and, after a
// step in `models`, the mean of all.
std::vector<double> Oracle(const char* method, int size, int64_t steps) {
  const bool is_local = std::string(method).find("local") == 0;
  std::vector<double> models(static_cast<size_t>(size), 1.0);
  for (int64_t step = 0; step < steps; ++step) {
    double mean = 0, sum = 0;
    for (int r = 0; r < size; ++r) mean += GradientOf(r, step) / size;
    for (size_t r = 0; r < models.size(); ++r) {
      models[r] -= is_local ? GradientOf(static_cast<int>(r), step) : mean;
      sum += models[r];
    }
    if (is_local && step % 2 == 1) models.assign(models.size(), sum / size);
  }
  return models;
}

class TrainerTest : public testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(TrainerTest, ModelsAreThoseOfTheFormulas) {
  const auto [size, method] = GetParam();
  RunRanks(size, "", [size = size, method = method](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
    for (int64_t step = 0; step < 5; ++step)
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    const std::vector<double> expected = Oracle(method, size, 5);
    for (const std::vector<double>& parameter : adapter.model)
      for (const double one : parameter)
        ASSERT_EQ(one, expected[static_cast<size_t>(rank)]) << method << " rank " << rank;
    EXPECT_EQ(adapter.Position().version, 5);
    ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
    double mean = 0;
    for (const double one : expected) mean += one / size;
    EXPECT_EQ(adapter.model[1].front(), mean);
    EXPECT_EQ(adapter.Position().may_differ, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(All, TrainerTest,
                         testing::Values(std::pair{1, "allreduce"}, std::pair{2, "allreduce"},
                                         std::pair{4, "allreduce"}, std::pair{2, "local:H=2"},
                                         std::pair{4, "local:H=2"}, std::pair{1, "eager:admit=2"},
                                         std::pair{2, "eager:admit=all,max_wait=60s"},
                                         std::pair{4, "allreduce:max_wait=60s"},
                                         std::pair{2,
                                                   "eager:admit=all,max_wait=60s,"
                                                   "then=allreduce@3"}));

TEST(TrainerMethodsTest, NeighborsAllTakenAreTheMean) {
  RunRanks(4, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("dpsgd:topology=full,order=atc"), COVEY_OK) << adapter.error.message;
    double expected = 1;
    for (int64_t step = 0; step < 3; ++step) {
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
      for (int r = 0; r < 4; ++r) expected -= GradientOf(r, step) / 4;
      ASSERT_EQ(adapter.model[1].front(), expected);
    }
  });
}

// Averaging moves no mean, and each update counts once.
TEST(TrainerMethodsTest, PairsEndWithTheMeanOfAllUpdates) {
  for (const char* method : {"adpsgd", "swarm:H=2", "swarm:H=2,codec=lattice@16",
                             "allreduce:then=adpsgd@2,then=allreduce@5"}) {
    RunRanks(4, "", [method](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
      double expected = 1;
      for (int64_t step = 0; step < 7; ++step) {
        ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
        for (int r = 0; r < 4; ++r) expected -= GradientOf(r, step) / 4;
      }
      EXPECT_EQ(adapter.Position().version, 7);
      ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
      for (const std::vector<double>& parameter : adapter.model)
        EXPECT_NEAR(parameter.back(), expected, 0.01) << method;
      EXPECT_EQ(adapter.Position().may_differ, 0);
    });
  }
}

TEST(TrainerMethodsTest, ARankOfPairsEndsWithoutOneThatIsMissingAndLosesNothing) {
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("swarm:H=5,max_wait=50ms"), COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK);
    both.arrive_and_wait();
    if (rank == 0) {
      EXPECT_EQ(adapter.Finish(), COVEY_TIMEOUT);
      EXPECT_NE(std::string(adapter.error.message).find("rank 1"), std::string::npos);
      ASSERT_EQ(adapter.Step(1), COVEY_OK) << "it trains on";
      const double own = adapter.model[1].front();
      EXPECT_EQ(adapter.Finish(0), COVEY_OK) << adapter.error.message;
      EXPECT_NE(adapter.model[1].front(), own) << "the mean of those that are seen";
    }
    both.arrive_and_wait();
    ASSERT_EQ(adapter.Step(2), COVEY_OK) << "from its own";
    both.arrive_and_wait();
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = adapter.Finish();
    ASSERT_EQ(code, COVEY_OK) << adapter.error.message;
    double expected = 1;
    for (const int64_t step : {0, 2})
      for (int r = 0; r < 2; ++r) expected -= GradientOf(r, step) / 2;
    EXPECT_NEAR(adapter.model[1].front(), expected - GradientOf(0, 1) / 2, 1e-9);
  });
}

TEST(TrainerMethodsTest, CodecsLeaveReplicasEqualAndNearTheMean) {
  for (const char* method :
       {"allreduce:codec=bf16", "allreduce:codec=topk@bits=16", "local:H=2,codec=int8",
        "local:H=1,codec=topk@bits=16", "dpsgd:topology=full,order=atc,codec=bf16"}) {
    std::vector<double> ends(3);
    RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
      double expected = 1;
      for (int64_t step = 0; step < 6; ++step) {
        ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
        for (int r = 0; r < 3; ++r) expected -= GradientOf(r, step) / 3;
      }
      EXPECT_NEAR(adapter.model[1].front(), expected, 1e-6) << method << ": float64 is not encoded";
      ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
      ends[static_cast<size_t>(rank)] = adapter.model[0][1];
    });
    EXPECT_EQ(ends[0], ends[1]) << method;
    EXPECT_EQ(ends[0], ends[2]) << method;
  }
}

TEST(TrainerMethodsTest, ATrainingWithACodecGoesOnFromItsArrays) {
  for (const char* method : {"local:H=2,codec=int8", "allreduce:codec=topk@bits=4"}) {
    RunRanks(2, "", [method](int rank, covey_runtime*& runtime) {
      Adapter whole(rank, runtime), loaded(rank, runtime);
      ASSERT_EQ(whole.Open(method), COVEY_OK) << whole.error.message;
      for (int64_t step = 0; step < 3; ++step) ASSERT_EQ(whole.Step(step), COVEY_OK);
      const covey_position position = whole.Position();
      const auto arrays = whole.State();
      ASSERT_FALSE(arrays.empty());
      loaded.model = whole.model;
      for (int64_t step = 3; step < 7; ++step) ASSERT_EQ(whole.Step(step), COVEY_OK);
      covey_trainer_close(runtime, std::exchange(whole.trainer, 0));
      ASSERT_EQ(loaded.Open(method), COVEY_OK) << loaded.error.message;
      loaded.PutState(arrays);
      ASSERT_EQ(covey_trainer_restore(runtime, loaded.trainer, &position, &loaded.error), COVEY_OK);
      for (int64_t step = 3; step < 7; ++step) ASSERT_EQ(loaded.Step(step), COVEY_OK);
      EXPECT_EQ(loaded.model, whole.model) << method;
    });
  }
}

TEST(TrainerMethodsTest, AGoneOnTrainingIsTheSame) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    Adapter whole(rank, runtime);
    ASSERT_EQ(whole.Open("local:H=4"), COVEY_OK) << whole.error.message;
    for (int64_t step = 0; step < 2; ++step) ASSERT_EQ(whole.Step(step), COVEY_OK);
    const covey_position position = whole.Position();
    EXPECT_EQ(position.may_differ, 1);
    const std::vector<std::vector<double>> model = whole.model;
    for (int64_t step = 2; step < 6; ++step) ASSERT_EQ(whole.Step(step), COVEY_OK);
    const std::vector<double> expected = whole.model[1];
    covey_trainer_close(runtime, whole.trainer);
    whole.trainer = 0;

    Adapter loaded(rank, runtime);
    ASSERT_EQ(loaded.Open("local:H=4"), COVEY_OK) << loaded.error.message;
    ASSERT_EQ(covey_trainer_restore(runtime, loaded.trainer, &position, &loaded.error), COVEY_OK);
    loaded.model = model;
    for (int64_t step = 2; step < 6; ++step) ASSERT_EQ(loaded.Step(step), COVEY_OK);
    EXPECT_EQ(loaded.model[1], expected);
    EXPECT_EQ(loaded.Position().version, 6);
  });
}

TEST(TrainerErrorsTest, UnfitGradientsAreRefusedByAllAndTheNextStepWorks) {
  RunRanks(3, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("allreduce"), COVEY_OK);
    EXPECT_EQ(adapter.Step(0, rank == 1 ? "3 NaN" : nullptr), COVEY_NOT_FINITE);
    EXPECT_NE(std::string(adapter.error.message).find("rank 1 has 3 NaN"), std::string::npos);
    EXPECT_EQ(adapter.model[1].front(), 1);
    EXPECT_EQ(adapter.Position().step, 0);
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.model[1].front(), 1 - (16 + 32 + 48) / 3);
  });
}

TEST(TrainerErrorsTest, ALocalStepIsRefusedByItsRankAlone) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("local:H=2"), COVEY_OK);
    EXPECT_EQ(adapter.Step(0, rank == 1 ? "3 NaN" : nullptr),
              rank == 1 ? COVEY_NOT_FINITE : COVEY_OK);
    EXPECT_EQ(adapter.Position().step, rank == 1 ? 0 : 1);
  });
}

TEST(TrainerErrorsTest, WhatDiffersIsNamedOnEveryRank) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    const int64_t counts[] = {1000, rank == 0 ? 70000 : 7, 3};
    EXPECT_EQ(adapter.Open("allreduce", counts), COVEY_MISMATCH);
    EXPECT_NE(std::string(adapter.error.message).find("float64[7]"), std::string::npos)
        << adapter.error.message;
    ASSERT_EQ(adapter.Open(rank == 0 ? "allreduce" : "local"), COVEY_MISMATCH);
    ASSERT_EQ(adapter.Open("allreduce"), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.Step(0), COVEY_OK);
  });
}

TEST(TrainerErrorsTest, OptimizersThatKeepDifferentNumbersOfArraysAreToldSo) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    adapter.kept.assign(rank == 0 ? 1 : 2, std::vector<double>(3, rank));
    ASSERT_EQ(adapter.Open("local:H=9,then=allreduce@1"), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(covey_trainer_list(runtime, adapter.trainer, nullptr, 0, &adapter.error),
              COVEY_INVALID_ARGUMENT)
        << "it is not asked for";
    EXPECT_EQ(adapter.Step(0), COVEY_MISMATCH);
    EXPECT_NE(std::string(adapter.error.message).find("keep 1 to 2 arrays"), std::string::npos);
    if (rank == 1) adapter.kept.pop_back();
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << "listed anew: " << adapter.error.message;
    EXPECT_EQ(adapter.kept[0], std::vector<double>(3, 0.5)) << "the mean";
  });
}

TEST(TrainerErrorsTest, ACodecWithNothingToEncodeIsRefused) {
  constexpr covey_dtype kDoubles[] = {COVEY_FLOAT64, COVEY_FLOAT64, COVEY_FLOAT64};
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    for (const char* method : {"swarm:codec=lattice", "allreduce:codec=bf16", "local:codec=int8"}) {
      EXPECT_EQ(adapter.Open(method, kCounts, kDoubles), COVEY_INVALID_ARGUMENT) << method;
      EXPECT_NE(std::string(adapter.error.message).find("leave out codec"), std::string::npos);
    }
  });
}

TEST(TrainerErrorsTest, WrongCallsChangeNothing) {
  RunRanks(1, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("allreduce"), COVEY_OK);
    covey_error* error = &adapter.error;
    covey_action action = COVEY_INIT(covey_action);
    EXPECT_EQ(covey_trainer_next(runtime, adapter.trainer, -1, &action, error),
              COVEY_INVALID_ARGUMENT)
        << "nothing was submitted";
    EXPECT_EQ(covey_trainer_submit(runtime, adapter.trainer, nullptr, error),
              COVEY_INVALID_ARGUMENT)
        << "there is a hyper-parameter";
    const double rate = 1;
    covey_step step = COVEY_INIT(covey_step);
    step.hypers = &rate;
    ASSERT_EQ(covey_trainer_submit(runtime, adapter.trainer, &step, error), COVEY_OK);
    EXPECT_EQ(covey_trainer_submit(runtime, adapter.trainer, &step, error), COVEY_OK)
        << "it is the same step, of which no action was given";
    EXPECT_EQ(covey_trainer_give(runtime, adapter.trainer, nullptr, nullptr, 1, error),
              COVEY_INVALID_ARGUMENT);
    ASSERT_EQ(covey_trainer_next(runtime, adapter.trainer, -1, &action, error), COVEY_OK);
    ASSERT_EQ(action.verb, COVEY_COLLECT_GRADIENTS);
    covey_action again = COVEY_INIT(covey_action);
    ASSERT_EQ(covey_trainer_next(runtime, adapter.trainer, -1, &again, error), COVEY_OK);
    EXPECT_EQ(again.number, action.number) << "until it is acknowledged";
    EXPECT_EQ(covey_trainer_submit(runtime, adapter.trainer, &step, error), COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_trainer_ack(runtime, adapter.trainer, action.number + 1, 1, error),
              COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_trainer_ack(runtime, adapter.trainer, action.number, 1, error), COVEY_OK);
    EXPECT_EQ(covey_trainer_ack(runtime, adapter.trainer, action.number, 1, error),
              COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(adapter.Run(-1), COVEY_OK);
    EXPECT_EQ(adapter.last, COVEY_DONE);
    EXPECT_EQ(adapter.Position().version, 1);
    action.struct_size = 1;
    EXPECT_EQ(covey_trainer_next(runtime, adapter.trainer, -1, &action, error),
              COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_trainer_submit(runtime, 12345, nullptr, error), COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_trainer_gradients(runtime, adapter.trainer, nullptr, error),
              COVEY_INVALID_ARGUMENT);
  });
}

TEST(TrainerErrorsTest, APendingStepGoesOnAndASecondThreadIsRefused) {
  std::barrier looked(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("allreduce"), COVEY_OK);
    if (rank == 0) {
      EXPECT_EQ(adapter.Step(0, nullptr, 1'000'000), COVEY_TIMEOUT);
      EXPECT_EQ(adapter.last, COVEY_PENDING);
      std::atomic<bool> waits{false};
      std::thread other([&] {
        // Until the first thread is inside, which waits for rank 1, this one is alone.
        covey_error error = COVEY_INIT(covey_error);
        covey_position position = COVEY_INIT(covey_position);
        while (covey_trainer_position(runtime, adapter.trainer, &position, &error) == COVEY_OK)
          std::this_thread::yield();
        EXPECT_NE(std::string(error.message).find("two threads"), std::string::npos);
        waits.store(true);
        looked.arrive_and_wait();
      });
      EXPECT_EQ(adapter.Run(-1), COVEY_OK) << adapter.error.message;
      EXPECT_TRUE(waits.load());
      other.join();
    } else {
      looked.arrive_and_wait();
      EXPECT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    }
  });
}

TEST(TrainerErrorsTest, TheLossOfARankEndsTheStep) {
  RunRanks(2, kLooksForLosses, [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("allreduce"), COVEY_OK);
    ASSERT_EQ(adapter.Step(0), COVEY_OK);
    if (rank == 1) return;
    EXPECT_EQ(adapter.Step(1), COVEY_ABORTED);
    EXPECT_EQ(adapter.error.peer_rank, 1);
    EXPECT_EQ(adapter.model[1].front(), 1 - 24);
  });
}

TEST(TrainerMemoryTest, WhatIsClosedIsGivenBack) {
  RunRanks(2, "arena_bytes=64MiB", [](int rank, covey_runtime*& runtime) {
    for (int i = 0; i < 100; ++i) {  // 1.1 MB each
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open("local:H=1"), COVEY_OK) << i << ": " << adapter.error.message;
      ASSERT_EQ(adapter.Step(0), COVEY_OK);
    }
  });
}

}  // namespace
}  // namespace covey
