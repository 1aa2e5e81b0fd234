// Goal: pairs of a trainer between ranks that do not all share memory: nothing that is learnt is
// lost, finish() leaves the exact mean on all, settle() each rank's own model, and a rank that
// stops, dies or leaves holds up no other.
// Method: ranks as threads on hosts of several make-ups; progress in whole numbers, so that sums
// are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/contract/pair_progress.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

constexpr int kSteps = 30;

class HostsPairsTest : public testing::TestWithParam<std::tuple<Place, const char*>> {};

TEST_P(HostsPairsTest, WhatAllHaveLearntIsInTheMean) {
  const auto [place, method] = GetParam();
  const int size = place.size;
  std::vector<double> ends(static_cast<size_t>(size));
  std::atomic<uint64_t> begun{0}, bytes{0};
  std::barrier all_have_begun(size);  // Else each may be alone from its begin to its end.
  RunRanks(place, [&, method = method](int rank, covey_runtime*& runtime) {
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
    begun += CountOf(adapter.Stats(), "begun");
    bytes += StatOf(runtime, "pair_bytes");
  });
  for (const double one : ends) EXPECT_EQ(one, ends[0]);
  EXPECT_GT(begun, 0u);
  EXPECT_GT(bytes, 0u);
}

constexpr Place kTwo{2, kOverNetwork}, kFour{4, kOverNetwork}, kTwoByTwo{4, kOverNetwork, 2},
    kThreeAndOne{4, kOverNetwork, 3};
using Case = std::tuple<Place, const char*>;
INSTANTIATE_TEST_SUITE_P(
    All, HostsPairsTest,
    testing::Values(Case{kTwo, "adpsgd"}, Case{kTwoByTwo, "adpsgd"},
                    Case{kTwoByTwo, "adpsgd:topology=full"}, Case{kThreeAndOne, "adpsgd"},
                    Case{kFour, "adpsgd:topology=matching"}, Case{kTwo, "swarm:H=2"},
                    Case{kTwoByTwo, "swarm:H=2,exchange=nonblocking"},
                    Case{kThreeAndOne, "swarm:H=3,steps=geometric"},
                    Case{kTwoByTwo, "swarm:H=2,codec=bf16"}, Case{kTwo, "adpsgd:codec=int8"},
                    Case{kTwo, "adpsgd:codec=lattice@8"},
                    Case{kTwoByTwo, "swarm:H=2,codec=lattice"},
                    Case{kThreeAndOne, "swarm:exchange=nonblocking,codec=qsgd"}));

TEST(HostsPairsTest, WhatRanksHoldOnceAllHaveSettledIsAllThatWasLearnt) {
  for (const char* method : {"adpsgd", "swarm:H=7,exchange=nonblocking"}) {
    double held[4];
    RunRanks(kTwoByTwo, [&](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
      for (int step = 0; step < kSteps; ++step)
        ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
      ASSERT_EQ(adapter.Settle(), COVEY_OK) << adapter.error.message;
      held[rank] = adapter.model[1][0];
      for (const double one : adapter.model[1]) ASSERT_EQ(one, held[rank]);
      ASSERT_EQ(adapter.Step(kSteps), COVEY_OK);
      ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
      EXPECT_NEAR(adapter.model[1][0], MeanOf(4, kSteps + 1), 1e-6);
    });
    EXPECT_NEAR(std::accumulate(held, held + 4, 0.0) / 4, MeanOf(4, kSteps), 1e-6) << method;
  }
}

// Rank 3 does nothing at all; the others train, and are refused only by finish(), which names it.
// Then they train on, and all come to one mean.
TEST(HostsPairsTest, ARankThatDoesNothingHoldsUpNoOther) {
  for (const bool has_begun : {true, false}) {
    std::barrier all(4), others(3);
    std::atomic<bool> over{false};
    RunRanks(kTwoByTwo, [&](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open("adpsgd:max_wait=200ms"), COVEY_OK) << adapter.error.message;
      if (has_begun) {
        ASSERT_EQ(adapter.BeginPass(), COVEY_OK) << adapter.error.message;
      }
      all.arrive_and_wait();
      while (rank == 3 && !over) std::this_thread::yield();
      if (rank < 3) {
        for (int step = 0; step < kSteps; ++step) ASSERT_EQ(adapter.Step(step), COVEY_OK);
        EXPECT_EQ(adapter.Finish(), COVEY_TIMEOUT);
        const std::string message = adapter.error.message;
        EXPECT_NE(message.find("has waited 200 ms (max_wait) for rank "), message.npos) << message;
        EXPECT_NE(message.find("3: call it again to wait on, or train on"), message.npos)
            << message;
        others.arrive_and_wait();  // a rank that trains on is missing to those that wait
        EXPECT_EQ(adapter.Step(kSteps), COVEY_OK) << adapter.error.message;
        others.arrive_and_wait();
        over = true;
      }
      covey_code code = COVEY_TIMEOUT;
      while (code == COVEY_TIMEOUT) code = adapter.Finish();
      EXPECT_EQ(code, COVEY_OK) << adapter.error.message;
      const double expected = 1 + (MeanOf(3, kSteps + 1) - 1) * 3 / 4;
      for (const double one : adapter.model[1]) ASSERT_NEAR(one, expected, 1e-6);
    });
  }
}

// Rank 3 trains, and is stopped between two messages. The others go on, and finish with it.
TEST(HostsPairsTest, ARankThatIsStoppedHoldsUpNoStep) {
  std::barrier all(4), others(3);
  std::atomic<bool> over{false};
  RunRanks(kTwoByTwo, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd:topology=full"), COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    all.arrive_and_wait();
    if (rank == 3) ThreadNetwork::Current()->SetStopped(3, true);
    all.arrive_and_wait();
    while (rank == 3 && !over) std::this_thread::yield();
    for (int step = 1; rank < 3 && step < kSteps; ++step)
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    if (rank < 3) others.arrive_and_wait();
    over = true;
    if (rank == 3) ThreadNetwork::Current()->SetStopped(3, false);
    ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
    const double expected =
        1 + (Learnt(0, kSteps) + Learnt(1, kSteps) + Learnt(2, kSteps) + Learnt(3, 1)) / 4;
    for (const double one : adapter.model[1]) ASSERT_NEAR(one, expected, 1e-6);
  });
}

// Rank 3 dies in its steps: the others end with one model.
TEST(HostsPairsTest, ARankThatIsKilledIsWaitedForNoMore) {
  const Place place{4, "transport=mpi\nrecheck=1s\n", 2};
  double ends[3] = {};
  RunRanks(place, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd"), COVEY_OK) << adapter.error.message;
    for (int step = 0; step < kSteps; ++step) {
      if (rank == 3 && step == kSteps / 2) ThreadNetwork::Current()->Kill(3);
      if (rank == 3 && step >= kSteps / 2) break;
      ASSERT_EQ(adapter.Step(step), COVEY_OK) << adapter.error.message;
    }
    if (rank == 3) return;
    ASSERT_EQ(adapter.Finish(), COVEY_OK) << adapter.error.message;
    ends[rank] = adapter.model[1][0];
    for (const double one : adapter.model[1]) ASSERT_EQ(one, ends[rank]);
  });
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(ends[0], ends[2]);
}

// Rank 3 ends its training and lives on; the others train on without it.
TEST(HostsPairsTest, ARankThatHasClosedIsAveragedWithAndWaitedForNoMore) {
  std::barrier all(4);
  RunRanks(kTwoByTwo, [&](int rank, covey_runtime*& runtime) {
    auto adapter = std::make_unique<Adapter>(rank, runtime);
    ASSERT_EQ(adapter->Open("adpsgd"), COVEY_OK) << adapter->error.message;
    ASSERT_EQ(adapter->Step(0), COVEY_OK) << adapter->error.message;
    ASSERT_EQ(adapter->Finish(), COVEY_OK) << adapter->error.message;
    if (rank == 3) adapter.reset();
    all.arrive_and_wait();
    if (rank < 3) {
      EXPECT_EQ(adapter->Step(0), COVEY_OK) << adapter->error.message;
      EXPECT_EQ(adapter->Finish(), COVEY_OK) << adapter->error.message;
      EXPECT_NEAR(adapter->model[1][0], MeanOf(4, 1) + MeanOf(3, 1) - 1, 1e-6);
    }
    all.arrive_and_wait();
  });
}

// Rank 3 is stopped: finish() shows the others the mean of their models, the same to each.
TEST(HostsPairsTest, WithoutAStoppedRankTheOthersSeeTheMeanOfTheirModels) {
  std::barrier all(4), others(3);
  double seen[3] = {};
  RunRanks(kFour, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd:topology=full,max_wait=200ms"), COVEY_OK)
        << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    all.arrive_and_wait();
    if (rank == 3) ThreadNetwork::Current()->SetStopped(3, true);
    all.arrive_and_wait();
    if (rank < 3) {
      ASSERT_EQ(adapter.Finish(0), COVEY_OK) << adapter.error.message;
      seen[rank] = adapter.model[1][0];
      others.arrive_and_wait();
    }
    all.arrive_and_wait();
    if (rank == 3) ThreadNetwork::Current()->SetStopped(3, false);
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = adapter.Finish();
    ASSERT_EQ(code, COVEY_OK) << adapter.error.message;
    EXPECT_NEAR(adapter.model[1][0], MeanOf(4, 1), 1e-9);
  });
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(HostsPairsTest, FinishesAreCounted) {
  const double model = ModelAfterTwoFinishes(kTwo, "adpsgd:max_wait=30ms", true);
  EXPECT_NEAR(model, MeanOf(2, 2), 1e-6);
}

TEST(HostsPairsTest, AFinishAgainAtOnceIsCounted) {
  ModelAfterTwoFinishes(kTwo, "adpsgd:max_wait=30ms", false);
}

TEST(HostsPairsTest, AllLeavePairsWithOneModel) { CheckTheEndOfPairs(kTwo); }

TEST(HostsPairsTest, AFinishWaitsWhereAnotherRankSettles) { CheckASettleBesideAFinish(kTwo); }

TEST(HostsPairsTest, AFinishOfRoundsAgainAtOnceIsCounted) {
  ModelAfterTwoFinishes(kTwo, "local:H=1,max_wait=30ms", false);
}

TEST(HostsPairsTest, AStepAfterAFinishCountsInTheNextOne) {
  for (const char* method : {"eager:admit=solo,max_wait=10ms", "diloco:H=1,max_wait=10ms",
                             "local:H=1,max_wait=10ms", "wagma:max_wait=10ms"})
    CheckALateStep(kTwo, method);
}

// Its model, at once or when it has answered.
covey_seen_state Look(Adapter* adapter, int other, void* const* to) {
  do EXPECT_EQ(adapter->Peek(other, to), COVEY_OK) << adapter->error.message;
  while (adapter->seen.state == COVEY_SEEN_ASKED);
  return adapter->seen.state;
}

TEST(HostsPairsTest, AnyRankLooksAtThoseOfOtherHosts) {
  for (const Place& place : {kTwo, kTwoByTwo}) {
    std::barrier all(place.size);
    RunRanks(place, [&](int rank, covey_runtime*& runtime) {
      auto adapter = std::make_unique<Adapter>(rank, runtime);
      std::vector<float> first(1000), last(3);
      std::vector<double> middle(70000);
      void* to[] = {first.data(), middle.data(), last.data()};
      ASSERT_EQ(adapter->Open("adpsgd"), COVEY_OK) << adapter->error.message;
      ASSERT_EQ(adapter->BeginPass(), COVEY_OK) << adapter->error.message;
      all.arrive_and_wait();
      for (int other = 0; other < place.size; ++other) {
        EXPECT_EQ(Look(adapter.get(), other, to), COVEY_SEEN_WHOLE);
        EXPECT_EQ(adapter->seen.version, 0);
        EXPECT_EQ(first[0], 1);
        EXPECT_EQ(middle[69999], 1);
        EXPECT_EQ(last[2], 1);
      }
      all.arrive_and_wait();
      ASSERT_EQ(adapter->Step(0), COVEY_OK) << adapter->error.message;
      ASSERT_EQ(adapter->Finish(), COVEY_OK) << adapter->error.message;
      const int last_rank = place.size - 1;
      all.arrive_and_wait();
      EXPECT_EQ(Look(adapter.get(), last_rank, to), COVEY_SEEN_WHOLE);
      EXPECT_EQ(adapter->seen.version, 1);
      EXPECT_EQ(adapter->seen.superseded, 0);
      EXPECT_EQ(middle[0], adapter->model[1][0]);
      all.arrive_and_wait();
      if (rank == last_rank) adapter.reset();
      all.arrive_and_wait();
      if (rank < last_rank) {
        EXPECT_EQ(Look(adapter.get(), last_rank, to), COVEY_SEEN_CLOSED);
      }
      all.arrive_and_wait();
    });
  }
}

}  // namespace
}  // namespace covey
