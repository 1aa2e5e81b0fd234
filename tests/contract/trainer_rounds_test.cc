// Trainings by methods that do not wait for all ranks, through the C API: ranks are threads over
// real shared memory.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/pair_progress.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

// A rank that has fallen out of the log, and finds the others in finish().
TEST(TrainerRoundsTest, ARankThatHasFallenBehindGoesOnFromTheStateOfAnother) {
  std::barrier ahead(3);
  std::vector<std::vector<double>> ends(3);
  std::atomic<int> packed{0};
  RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("eager:admit=solo,grace=0s,log=2,max_staleness=1000,max_wait=60s"),
              COVEY_OK)
        << adapter.error.message;
    const int64_t steps = rank == 1 ? 1 : 9;
    if (rank == 1) ahead.arrive_and_wait();
    for (int64_t step = 0; step < steps; ++step)
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    if (rank != 1) ahead.arrive_and_wait();
    ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
    ends[static_cast<size_t>(rank)] = adapter.model[1];
    packed += adapter.packed;
    EXPECT_EQ(adapter.unpacked, rank == 1 ? 1 : 0);
  });
  EXPECT_GE(packed.load(), 1);
  double sum = 1 - 32.0 / 3;  // each gradient counts once
  for (int64_t step = 0; step < 9; ++step) sum -= (GradientOf(0, step) + GradientOf(2, step)) / 3;
  for (const std::vector<double>& model : ends) {
    EXPECT_EQ(model, ends[0]);
    EXPECT_NEAR(model.front(), sum, 1e-9);
  }
}

// Two averages of all are made without it.
TEST(TrainerRoundsTest, ALateRankKeepsItsProgress) {
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("wagma:S=2,tau=1,max_wait=50ms"), COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    if (rank == 0) {
      ASSERT_EQ(adapter.Step(1), COVEY_OK) << adapter.error.message;
      ASSERT_EQ(adapter.Step(2), COVEY_OK) << adapter.error.message;
    }
    both.arrive_and_wait();
    if (rank == 1) {
      ASSERT_EQ(adapter.Step(1), COVEY_OK) << adapter.error.message;
      const double mean = 1 - (16.0 + 32.0) / 2;
      EXPECT_EQ(adapter.model[1].front(), mean - (20 + 24) - 36) << "that of rank 0, and its own";
    }
    both.arrive_and_wait();
    ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
  });
}

// A caller that was interrupted when it had acknowledged its gradients.
TEST(TrainerRoundsTest, AStepThatIsTakenUpBeforeItsExchangeHasBegunGoesOn) {
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("eager:admit=all,max_wait=60s"), COVEY_OK) << adapter.error.message;
    adapter.leaves_after = COVEY_COLLECT_GRADIENTS;
    ASSERT_EQ(adapter.Step(0), COVEY_ABORTED) << "as the adapter says";
    ASSERT_EQ(adapter.Step(1), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.model[1].front(), 1 - (16.0 + 32.0) / 2) << "with the first gradients";
  });
}

TEST(TrainerRoundsTest, ARankThatSkipsAheadBeginsItsPassAtTheNewestModel) {
  constexpr char kMethod[] = "eager:admit=solo,grace=0s,progress=skip,max_wait=60s,log=8";
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open(kMethod), COVEY_OK) << adapter.error.message;
    for (int64_t step = 0; rank == 0 && step < 3; ++step)
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    both.arrive_and_wait();
    if (rank == 1) {
      ASSERT_EQ(adapter.BeginPass(), COVEY_OK) << adapter.error.message;
      EXPECT_EQ(adapter.Position().version, 3);
      EXPECT_EQ(adapter.model[1].front(), 1 - (16.0 + 20 + 24) / 2) << "of rank 0";
      ASSERT_EQ(adapter.BeginPass(), COVEY_OK) << "again, it has nothing to do";
      ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    }
    both.arrive_and_wait();
    ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.Position().version, 4);
    EXPECT_EQ(adapter.model[1].front(), 1 - (16.0 + 20 + 24 + 32) / 2);
  });
}

TEST(TrainerRoundsTest, UnfitGradientsAreLeftOutAndTheirRankIsTold) {
  RunRanks(3, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("eager:admit=all,max_wait=60s"), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.Step(0, rank == 1 ? "3 NaN" : nullptr),
              rank == 1 ? COVEY_NOT_FINITE : COVEY_OK);
    if (rank == 1) {
      EXPECT_NE(std::string(adapter.error.message).find("rank 1 has 3 NaN"), std::string::npos);
    }
    EXPECT_EQ(adapter.model[1].front(), 1 - (16.0 + 48) / 2);
    EXPECT_EQ(adapter.Position().version, 1);
    const std::string stats = adapter.Stats();
    EXPECT_EQ(stats.find(R"({"versions":1,"fresh":[1,0,1],"overdue":[0,0,0],"missing":[0,0,0],)"
                         R"("staleness":[2,0,0,0,0,0,0],"memory_bytes":{"exchange":)"),
              0u)
        << stats;
    EXPECT_NE(stats.find(R"("published":1,"snapshots":0,"made":1,"copied":0,)"
                         R"("begun":0,"met":0,"steps":1,)"),
              std::string::npos)
        << stats;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.model[1].front(), 1 - (16.0 + 48) / 2 - 32);
  });
}

TEST(TrainerRoundsTest, AGoneOnTrainingIsTheSame) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("eager:admit=all,max_wait=60s"), COVEY_OK);
    for (int64_t step = 0; step < 2; ++step) ASSERT_EQ(adapter.Step(step), COVEY_OK);
    covey_position position = adapter.Position();
    EXPECT_EQ(position.begin, 2);
    ASSERT_EQ(adapter.Step(2), COVEY_OK);
    EXPECT_EQ(covey_trainer_restore(runtime, adapter.trainer, &position, &adapter.error),
              COVEY_INVALID_ARGUMENT)
        << "the rounds are elsewhere";
    EXPECT_NE(std::string(adapter.error.message).find("at version 3, and not at 2"),
              std::string::npos)
        << adapter.error.message;
    ASSERT_EQ(adapter.Step(3), COVEY_OK) << adapter.error.message;
  });
}

// One that was missing in all of it finds its versions, and its gradient is a step of its own.
TEST(TrainerRoundsTest, RanksGoOnFromAWarmUpWithoutOneThatIsMissing) {
  std::barrier ahead(3);
  RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("wagma:warmup_steps=2,max_wait=200ms"), COVEY_OK)
        << adapter.error.message;
    if (rank == 2) ahead.arrive_and_wait();
    for (int64_t step = 0; step < (rank == 2 ? 1 : 4); ++step)
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.Position().step, rank == 2 ? 3 : 4);
    if (rank != 2) ahead.arrive_and_wait();
    ASSERT_EQ(adapter.Finish(0), COVEY_OK) << adapter.error.message;
  });
}

TEST(TrainerRoundsTest, AFinishAgainAtOnceIsCounted) {
  for (const char* method : {"eager:admit=solo,max_wait=30ms", "diloco:H=1,max_wait=30ms"})
    ModelAfterTwoFinishes(Place{2, ""}, method, false);
}

TEST(TrainerRoundsTest, AStepAfterAFinishCountsInTheNextOne) {
  for (const char* method : {"eager:admit=solo,max_wait=10ms", "diloco:H=1,max_wait=10ms",
                             "local:H=1,max_wait=10ms", "wagma:max_wait=10ms"})
    CheckALateStep(Place{2, ""}, method);
}

TEST(TrainerRoundsTest, ATrainerEndsWithAPartOfItsMethod) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    constexpr char kMethod[] = "eager:admit=all,max_wait=60s,then=allreduce@2";
    Adapter wrong(rank, runtime), adapter(rank, runtime);
    wrong.end = 1;
    EXPECT_EQ(wrong.Open(kMethod), COVEY_INVALID_ARGUMENT);
    adapter.end = 2;
    ASSERT_EQ(adapter.Open(kMethod), COVEY_OK) << adapter.error.message;
    for (int64_t step = 0; step < 2; ++step) {
      EXPECT_EQ(adapter.Position().is_over, 0);
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    }
    EXPECT_EQ(adapter.Position().is_over, 1);
    EXPECT_EQ(adapter.Position().version, 2);
  });
}

// The counts of rounds stay when a rank has left them. Their memory is given back.
TEST(TrainerRoundsTest, StatsCountRoundsThatThisRankHasLeft) {
  for (const std::string method :
       {"eager:admit=all,max_wait=60s", "wagma:warmup_steps=2,admit=all,max_wait=60s"}) {
    RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open((method + ",then=allreduce@4").c_str()), COVEY_OK)
          << adapter.error.message;
      for (int64_t step = 0; step < 6; ++step) {
        ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
        const std::string stats = adapter.Stats();
        const auto has = [&](const std::string& what) { return stats.find(what) < stats.size(); };
        EXPECT_EQ(has(R"("rounds":0,)") && has(R"("made":0,)"), step >= 3) << stats;
        EXPECT_FALSE(has(R"("versions":0,)") || has(R"("published":0,)")) << stats;
        // By wagma there may be more: a part of models ends as by finish().
        if (step < 3 || method[0] != 'e') continue;
        EXPECT_TRUE(has(R"({"versions":4,"fresh":[4,4],)")) << stats;
        EXPECT_TRUE(has(R"("published":4,)")) << stats;
      }
    });
  }
}

}  // namespace
}  // namespace covey
