// Goal: pairs of a trainer over real shared memory: nothing that is learnt is lost, finish() leaves
// the exact mean on all, settle() each rank's own model, a rank that stops or leaves holds up no
// other, and any rank may look at any other's model.
// Method: ranks as threads; progress in whole numbers, so that sums are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/contract/pair_progress.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

constexpr int kSteps = 40;

class TrainerPairsMeanTest : public testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(TrainerPairsMeanTest, WhatAllHaveLearntIsInTheMean) {
  const auto [size, method] = GetParam();
  std::vector<double> ends(static_cast<size_t>(size));
  std::atomic<uint64_t> begun{0};
  std::barrier all_have_begun(size);  // Else each may be alone from its begin to its end.
  RunRanks(size, "", [&, size = size, method = method](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
    double expected = 1;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
        if (step == 0) all_have_begun.arrive_and_wait();
      }
      ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
      expected += MeanOf(size, kSteps) - 1;
      for (const double one : adapter.model[1]) ASSERT_NEAR(one, expected, 1e-5);
      for (const double one : adapter.model[0]) ASSERT_NEAR(one, expected, 0.1);
    }
    ends[static_cast<size_t>(rank)] = adapter.model[1][0];
    begun += size == 1 ? 1 : CountOf(adapter.Stats(), "begun");
  });
  for (const double one : ends) EXPECT_EQ(one, ends[0]);
  EXPECT_GT(begun, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainerPairsMeanTest,
    testing::Values(std::pair{1, "adpsgd"}, std::pair{2, "adpsgd"}, std::pair{3, "adpsgd"},
                    std::pair{4, "adpsgd:topology=ring"}, std::pair{5, "adpsgd:topology=full"},
                    std::pair{8, "adpsgd"}, std::pair{4, "adpsgd:topology=matching"},
                    std::pair{1, "swarm"}, std::pair{2, "swarm:H=2"}, std::pair{3, "swarm:H=7"},
                    std::pair{4, "swarm:exchange=nonblocking"},
                    std::pair{5, "swarm:steps=geometric,exchange=nonblocking"},
                    std::pair{8, "swarm:H=4,steps=geometric"},
                    std::pair{2, "adpsgd:codec=lattice@8"}, std::pair{3, "swarm:H=2,codec=lattice"},
                    std::pair{4, "swarm:H=2,exchange=nonblocking,codec=lattice@bits=4"},
                    std::pair{8, "adpsgd:codec=lattice@16"}, std::pair{2, "adpsgd:codec=bf16"},
                    std::pair{3, "swarm:H=2,codec=int8"},
                    std::pair{4, "swarm:exchange=nonblocking,codec=qsgd"},
                    std::pair{5, "adpsgd:codec=bf16@random"}, std::pair{8, "swarm:codec=fp16"}));

// 1003 float32, with the gaps between the parameters 1024, in one byte each and 16 bytes of a
// chunk, and 70000 float64 as they are; what was sent whole in between is counted too.
TEST(TrainerPairsTest, WhatTravelsEncodedIsCounted) {
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd:codec=lattice@8"), COVEY_OK) << adapter.error.message;
    for (int step = 0; step < kSteps; ++step) ASSERT_EQ(adapter.Step(step), COVEY_OK);
    const uint64_t met_one = CountOf(adapter.Stats(), "begun");
    const uint64_t decoded = StatOf(runtime, "pair_decoded"),
                   repaired = StatOf(runtime, "pair_repaired"),
                   bytes = StatOf(runtime, "pair_bytes");
    EXPECT_GE(decoded, 2 * met_one);  // Those that were called off are counted, too.
    EXPECT_LE(repaired, decoded);
    EXPECT_EQ(met_one > 0, repaired > 0);  // The first is: how far models are apart is not known.
    const uint64_t tries = decoded / 2;
    EXPECT_GE(bytes, tries * 2 * (1003 + 16 + 560000) + repaired / 2 * 1003 * 8);
    EXPECT_LE(bytes, tries * 2 * (1024 + 16 + 560064) + repaired * 1024 * 8);
    EXPECT_EQ(adapter.Finish(), COVEY_OK);
    EXPECT_EQ(StatOf(runtime, "pair_decoded"), decoded);
  });
}

TEST(TrainerPairsTest, TooManyOrTooFewRanksForATopologyAreRefused) {
  RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    EXPECT_EQ(adapter.Open("adpsgd:topology=bipartite"), COVEY_INVALID_ARGUMENT);
    EXPECT_NE(std::string(adapter.error.message).find("needs an even number of ranks, not 3"),
              std::string::npos)
        << adapter.error.message;
    EXPECT_EQ(adapter.Settle(), COVEY_INVALID_ARGUMENT);
    EXPECT_STREQ(
        adapter.error.message,
        "there is no such trainer: it was closed, ended with its runtime, or was never opened");
  });
}

// Wherever ranks are in their steps, and whatever others have averaged meanwhile: once all have
// settled, what they hold is all that was learnt, and they train on from there.
TEST(TrainerPairsTest, WhatRanksHoldOnceAllHaveSettledIsAllThatWasLearnt) {
  for (const char* method : {"adpsgd", "swarm:H=7", "swarm:H=7,exchange=nonblocking"}) {
    constexpr int kSize = 4;
    double held[kSize];
    RunRanks(kSize, "", [&](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
      for (int step = 0; step < kSteps; ++step)
        ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
      ASSERT_EQ(adapter.Settle(), COVEY_OK) << adapter.error.message;
      held[rank] = adapter.model[1][0];
      for (const double one : adapter.model[1]) ASSERT_EQ(one, held[rank]);
      EXPECT_EQ(adapter.Position().may_differ, 1);
      ASSERT_EQ(adapter.Step(kSteps), COVEY_OK);
      ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
      EXPECT_EQ(adapter.Position().may_differ, 0);
      EXPECT_NEAR(adapter.model[1][0], MeanOf(kSize, kSteps + 1), 1e-6);
    });
    EXPECT_NEAR(std::accumulate(held, held + kSize, 0.0) / kSize, MeanOf(kSize, kSteps), 1e-6)
        << method;
    // They are each rank's own; two may have averaged since their last steps, but not all four.
    EXPECT_NE(*std::min_element(held, held + kSize), *std::max_element(held, held + kSize));
  }
}

// Rank 0 wants to settle, then to finish, then to train on, while rank 1 does nothing.
TEST(TrainerPairsTest, ARankThatIsMissingIsNamedAndTrainingGoesOn) {
  std::atomic<bool> over{false};
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("swarm:H=3,max_wait=30ms"), COVEY_OK) << adapter.error.message;
    while (rank == 1 && !over) std::this_thread::yield();
    if (rank == 0) {
      ASSERT_EQ(adapter.Step(0), COVEY_OK);
      EXPECT_EQ(adapter.Settle(), COVEY_TIMEOUT);
      EXPECT_EQ(adapter.error.peer_rank, 1);
      EXPECT_EQ(adapter.model[1][0], 1 + Learnt(0, 1));
      EXPECT_EQ(adapter.Finish(), COVEY_TIMEOUT);
      EXPECT_EQ(adapter.model[1][0], 1 + Learnt(0, 1));
      EXPECT_EQ(adapter.Step(1), COVEY_OK) << adapter.error.message;
      over = true;
    }
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = adapter.Settle();
    EXPECT_EQ(code, COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.model[1][0], 1 + (rank == 0 ? Learnt(0, 2) : 0));
  });
}

// A rank that has waited in vain for a checkpoint has the mean by finish(), and the reverse.
TEST(TrainerPairsTest, AfterAVainSettleFinishIsAFinish) {
  for (const bool settles_first : {true, false}) {
    std::atomic<bool> over{false};
    RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open("adpsgd:max_wait=30ms"), COVEY_OK) << adapter.error.message;
      while (rank == 1 && !over) std::this_thread::yield();
      ASSERT_EQ(adapter.Step(0), COVEY_OK);
      if (rank == 0) {
        EXPECT_EQ(settles_first ? adapter.Settle() : adapter.Finish(), COVEY_TIMEOUT);
        over = true;
      }
      covey_code code = COVEY_TIMEOUT;
      while (code == COVEY_TIMEOUT) code = settles_first ? adapter.Finish() : adapter.Settle();
      EXPECT_EQ(code, COVEY_OK) << adapter.error.message;
      EXPECT_EQ(adapter.Position().may_differ, settles_first ? 0 : 1);
      if (settles_first) {
        EXPECT_EQ(adapter.model[1][0], MeanOf(2, 1));
      }
    });
  }
}

TEST(TrainerPairsTest, FinishesAreCounted) {
  const double model = ModelAfterTwoFinishes(Place{2, ""}, "adpsgd:max_wait=30ms", true);
  EXPECT_NEAR(model, MeanOf(2, 2), 1e-6);
}

TEST(TrainerPairsTest, AFinishAgainAtOnceIsCounted) {
  ModelAfterTwoFinishes(Place{2, ""}, "adpsgd:max_wait=30ms", false);
}

TEST(TrainerPairsTest, AllLeavePairsWithOneModel) { CheckTheEndOfPairs(Place{2, ""}); }

TEST(TrainerPairsTest, AFinishWaitsWhereAnotherRankSettles) {
  CheckASettleBesideAFinish(Place{2, ""});
}

TEST(TrainerPairsTest, AnyRankLooksAtAnyOtherAlone) {
  std::barrier all(3);
  RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd"), COVEY_OK) << adapter.error.message;
    std::vector<float> first(1000), last(3);
    std::vector<double> middle(70000);
    void* to[] = {first.data(), middle.data(), last.data()};
    all.arrive_and_wait();
    ASSERT_EQ(adapter.Peek(1, to), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.seen.state, COVEY_SEEN_CHANGING) << "no rank has begun";
    all.arrive_and_wait();
    ASSERT_EQ(adapter.BeginPass(), COVEY_OK) << adapter.error.message;
    all.arrive_and_wait();
    for (int other = 0; other < 3; ++other) {
      ASSERT_EQ(adapter.Peek(other, to), COVEY_OK) << adapter.error.message;
      EXPECT_EQ(adapter.seen.state, COVEY_SEEN_WHOLE);
      EXPECT_EQ(middle[69999], 1);
      EXPECT_EQ(first[0], 1);
      EXPECT_EQ(last[2], 1);
    }
    EXPECT_EQ(adapter.Peek(3, to), COVEY_INVALID_ARGUMENT);
    EXPECT_STREQ(adapter.error.message, "trainer: rank 3 is no member of its group");
    to[1] = nullptr;
    EXPECT_EQ(adapter.Peek(1, to), COVEY_INVALID_ARGUMENT);
    all.arrive_and_wait();
    EXPECT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
    EXPECT_NEAR(adapter.model[1][0], MeanOf(3, 1), 1e-9);
  });
}

TEST(TrainerPairsTest, WhereModelsAreEqualThereIsNothingToLookAtOrToSettle) {
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("allreduce"), COVEY_OK) << adapter.error.message;
    float number = 0;
    void* to[] = {&number, &number, &number};
    EXPECT_EQ(adapter.Peek(0, to), COVEY_UNSUPPORTED);
    EXPECT_EQ(adapter.Settle(), COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.Settle(), COVEY_OK) << adapter.error.message;
    EXPECT_EQ(adapter.model[1][0], MeanOf(2, 1));
  });
}

// Rank 1 ends its training and lives on; rank 0 trains alone then, and finishes.
TEST(TrainerPairsTest, ARankThatHasClosedIsAveragedWithAndWaitedForNoMore) {
  std::barrier both(2);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    auto adapter = std::make_unique<Adapter>(rank, runtime);
    ASSERT_EQ(adapter->Open("adpsgd:max_wait=1s"), COVEY_OK) << adapter->error.message;
    ASSERT_EQ(adapter->Step(0), COVEY_OK) << adapter->error.message;
    ASSERT_EQ(adapter->Finish(), COVEY_OK) << adapter->error.message;
    if (rank == 1) adapter.reset();
    both.arrive_and_wait();
    if (rank == 0) {
      EXPECT_EQ(adapter->Step(0), COVEY_OK) << adapter->error.message;
      EXPECT_EQ(adapter->Finish(), COVEY_OK) << adapter->error.message;
      EXPECT_EQ(adapter->model[1][0], MeanOf(2, 1) + Learnt(0, 1));
    }
    both.arrive_and_wait();
  });
}

// Rank 1 does nothing at all; rank 0 trains, averages with it, and is refused only by finish().
TEST(TrainerPairsTest, ARankThatDoesNothingHoldsUpNoOther) {
  std::atomic<bool> over{false};
  std::barrier both(2);  // Else rank 0 finds no other at its first steps.
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd:max_wait=30ms"), COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.BeginPass(), COVEY_OK) << adapter.error.message;
    both.arrive_and_wait();
    while (rank == 1 && !over) std::this_thread::yield();
    if (rank == 0) {
      for (int step = 0; step < kSteps; ++step) ASSERT_EQ(adapter.Step(step), COVEY_OK);
      EXPECT_EQ(CountOf(adapter.Stats(), "begun"), kSteps);
      const std::vector<double> before = adapter.model[1];
      EXPECT_EQ(adapter.Finish(), COVEY_TIMEOUT);
      EXPECT_EQ(adapter.error.peer_rank, 1);
      EXPECT_NE(std::string(adapter.error.message).find("30 ms (max_wait) for rank 1"),
                std::string::npos)
          << adapter.error.message;
      EXPECT_EQ(adapter.model[1], before);
      EXPECT_EQ(adapter.Step(kSteps), COVEY_OK) << adapter.error.message;
      over = true;
    }
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = adapter.Finish();
    EXPECT_EQ(code, COVEY_OK) << adapter.error.message;
    for (const double one : adapter.model[1]) ASSERT_NEAR(one, 1 + Learnt(0, kSteps + 1) / 2, 1e-9);
  });
}

}  // namespace
}  // namespace covey
