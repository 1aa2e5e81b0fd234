// The progress of ranks that train by Adapter with its gradients, and figures of a runtime, for
// tests of models averaged in pairs.
#ifndef COVEY_TESTS_CONTRACT_PAIR_PROGRESS_H_
#define COVEY_TESTS_CONTRACT_PAIR_PROGRESS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {

// The progress of a rank in its first `steps` steps: its model began with 1.
inline double Learnt(int rank, int steps) {
  double sum = 0;
  for (int step = 0; step < steps; ++step) sum -= GradientOf(rank, step);
  return sum;
}

// The mean of all models, each after as many steps.
inline double MeanOf(int size, int steps) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += Learnt(rank, steps);
  return 1 + sum / size;
}

// Two steps, each with its finish(). Rank 0 goes on from its first finish() and `trains` on, or
// finishes again at once; then rank 1 comes to its own first one.
inline void FinishTwice(int rank, Adapter* adapter, std::atomic<bool>* has_gone_on, bool trains) {
  for (int step = 0; step < 2; ++step) {
    const bool is_again = rank == 0 && step == 1;
    const covey_code stepped = !is_again || trains ? adapter->Step(step) : COVEY_OK;
    ASSERT_EQ(stepped, COVEY_OK) << adapter->error.message;
    if (is_again) *has_gone_on = true;
    while (rank == 1 && !*has_gone_on) std::this_thread::yield();
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = adapter->Finish(rank == 0 && step == 0 ? 0 : 1);
    ASSERT_EQ(code, COVEY_OK) << adapter->error.message;
  }
}

// The model of two ranks that have done so; they are equal.
inline double ModelAfterTwoFinishes(const Place& place, const char* method, bool trains) {
  std::atomic<bool> has_gone_on{false};
  double held[2] = {};
  RunRanks(place, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
    FinishTwice(rank, &adapter, &has_gone_on, trains);
    held[rank] = adapter.model[1][0];
  });
  EXPECT_EQ(held[0], held[1]) << method;
  return held[0];
}

// In each of some epochs rank 0 goes on from its finish() without rank 1, and finishes again at
// once; only then rank 1 does its step, goes on from a finish(), and finishes again, too. Their
// models are equal each time.
inline void CheckALateStep(const Place& place, const char* method) {
  constexpr int kEpochs = 10;
  std::atomic<int> gone_on{0};
  double held[2][kEpochs] = {};
  RunRanks(place, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      while (rank == 1 && gone_on <= epoch) std::this_thread::yield();
      ASSERT_EQ(adapter.Step(epoch), COVEY_OK) << adapter.error.message;
      ASSERT_EQ(adapter.Finish(0), COVEY_OK) << adapter.error.message;
      if (rank == 0) gone_on = epoch + 1;
      covey_code code = COVEY_TIMEOUT;
      while (code == COVEY_TIMEOUT) code = adapter.Finish(1);
      ASSERT_EQ(code, COVEY_OK) << adapter.error.message;
      held[rank][epoch] = adapter.model[1][0];
    }
  });
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    EXPECT_EQ(held[0][epoch], held[1][epoch]) << method << ", epoch " << epoch;
}

// Pairs of two ranks end with step 3. Each waits for the other one in its first finish() in vain,
// and trains on: rank 0 to the end of the pairs, rank 1 to its second finish(). Both leave the
// pairs with one model.
inline void CheckTheEndOfPairs(const Place& place) {
  std::atomic<bool> has_trained_on{false}, is_at_end{false};
  double held[2] = {};
  RunRanks(place, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("adpsgd:max_wait=30ms,then=allreduce@3"), COVEY_OK)
        << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    while (rank == 0 && !has_trained_on) std::this_thread::yield();
    ASSERT_EQ(adapter.Finish(), COVEY_TIMEOUT);
    ASSERT_EQ(adapter.Step(1), COVEY_OK) << adapter.error.message;
    if (rank == 1) has_trained_on = true;
    while (rank == 1 && !is_at_end) std::this_thread::yield();
    covey_code again = rank == 1 ? COVEY_TIMEOUT : COVEY_OK;
    while (again == COVEY_TIMEOUT) again = adapter.Finish();
    ASSERT_EQ(again, COVEY_OK) << adapter.error.message;
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) {
      code = adapter.Step(2);
      if (rank == 0 && code == COVEY_TIMEOUT) is_at_end = true;
    }
    ASSERT_EQ(code, COVEY_OK) << adapter.error.message;
    held[rank] = adapter.model[1][0];
  });
  EXPECT_EQ(held[0], held[1]);
  EXPECT_NEAR(held[0], MeanOf(2, 3), 1e-6);
}

// Rank 0 waits in settle() in vain, and trains on to its finish(). Then rank 1 calls settle(),
// trains on, and finishes: the mean has all that both have learnt.
inline void CheckASettleBesideAFinish(const Place& place) {
  std::atomic<bool> has_trained_on{false}, waits{false};
  RunRanks(place, [&](int rank, covey_runtime*& runtime) {
    Adapter adapter(rank, runtime);
    ASSERT_EQ(adapter.Open("swarm:H=8,max_wait=30ms"), COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.Step(0), COVEY_OK) << adapter.error.message;
    while (rank == 1 && !waits) std::this_thread::yield();
    covey_code settled = adapter.Settle();
    while (rank == 1 && settled == COVEY_TIMEOUT) settled = adapter.Settle();
    ASSERT_EQ(settled, rank == 0 ? COVEY_TIMEOUT : COVEY_OK) << adapter.error.message;
    ASSERT_EQ(adapter.Step(1), COVEY_OK) << adapter.error.message;
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) {
      code = adapter.Finish();
      waits = true;
    }
    ASSERT_EQ(code, COVEY_OK) << adapter.error.message;
    EXPECT_NEAR(adapter.model[1][0], MeanOf(2, 2), 1e-6);
  });
}

// The number `key` in a JSON text; UINT64_MAX: there is none.
inline uint64_t CountOf(const std::string& json, const std::string& key) {
  const size_t at = json.find("\"" + key + "\":");
  return at == std::string::npos ? UINT64_MAX : std::stoull(json.substr(at + key.size() + 3));
}

// The number `key` of covey_stats.
inline uint64_t StatOf(covey_runtime* runtime, const std::string& key) {
  std::string json(covey_stats(runtime, nullptr, 0), '\0');
  covey_stats(runtime, json.data(), json.size());
  return CountOf(json, key);
}

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_PAIR_PROGRESS_H_
