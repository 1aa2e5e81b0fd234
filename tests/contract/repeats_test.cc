// Small sums that are submitted again and again and awaited at once, over real shared memory: they
// are right, an error is one on all ranks, and other threads and operations come in between.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int kRounds = 300;
constexpr int64_t kElems = 5;
constexpr int64_t kMostElems = 200'000;  // no small sum

// Submits, waits and releases. `out`: where the result goes; null: in place.
covey_code SumNow(covey_runtime* runtime, const std::string& name, std::vector<float>* in,
                  std::vector<float>* out = nullptr, covey_error* why = nullptr) {
  covey_error error = COVEY_INIT(covey_error);
  FloatAllreduce op(name.c_str(), in->data(), static_cast<int64_t>(in->size()));
  covey_tensor output = op.tensor;
  if (out != nullptr) output.data = out->data();
  if (out != nullptr) op.request.outputs = &output;
  op.request.waits = 1;
  covey_handle handle = 0;
  covey_code code = covey_submit(runtime, &op.request, &handle, &error);
  if (code == COVEY_OK) {
    code = covey_wait(runtime, handle, -1, &error);
    covey_release(runtime, handle);
    EXPECT_EQ(covey_wait(runtime, handle, 0, nullptr), COVEY_INVALID_ARGUMENT) << "released";
  }
  if (why != nullptr) *why = error;
  return code;
}

uint64_t Repeats(covey_runtime* runtime) {
  char json[4096];
  covey_stats(runtime, json, sizeof(json));
  const std::string text(json);
  const std::string key = "\"repeats\":";
  return std::stoull(text.substr(text.find(key) + key.size()));
}

// The input of a rank in a round.
std::vector<float> Given(int rank, int round, int64_t elems) {
  std::vector<float> data(static_cast<size_t>(elems));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>((1 << rank) * (1 + round % 7) + static_cast<int>(i % 3));
  return data;
}

void ExpectSum(const std::vector<float>& data, int size, int round) {
  for (size_t i = 0; i < data.size(); ++i)
    ASSERT_EQ(data[i], static_cast<float>(((1 << size) - 1) * (1 + round % 7) +
                                          size * static_cast<int>(i % 3)))
        << "element " << i << " of round " << round;
}

class RepeatsTest : public testing::TestWithParam<int> {};

TEST_P(RepeatsTest, SumsOfSeveralNamesInMemoryThatChanges) {
  const int size = GetParam();
  RunRanks(size, "", [&](int rank, covey_runtime*& runtime) {
    for (int round = 0; round < kRounds; ++round) {
      for (const char* name : {"loss", "accuracy", "norm", ""}) {
        std::vector<float> data = Given(rank, round, kElems);
        std::vector<float> apart(data.size());
        const bool in_place = round % 5 < 3;
        ASSERT_EQ(SumNow(runtime, name, &data, in_place ? nullptr : &apart), COVEY_OK);
        ExpectSum(in_place ? data : apart, size, round);
        ASSERT_TRUE(in_place || data == Given(rank, round, kElems));
      }
    }
    const uint64_t before = Repeats(runtime);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> data = Given(rank, round, kElems);
      ASSERT_EQ(SumNow(runtime, "loss", &data), COVEY_OK);
    }
    EXPECT_TRUE(size > 1 || Repeats(runtime) - before > kRounds / 2)
        << "a rank alone waits for none";
  });
}

TEST_P(RepeatsTest, OtherSumsComeInBetween) {
  const int size = GetParam();
  RunRanks(size, "", [&](int rank, covey_runtime*& runtime) {
    covey_error error = COVEY_INIT(covey_error);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> large = Given(rank, round, round % 50 == 0 ? kMostElems : 3 * kElems);
      FloatAllreduce op("gradient", large.data(), static_cast<int64_t>(large.size()));
      covey_handle handle = 0;
      const bool is_in_flight = round % 3 == 0;
      covey_code submitted = COVEY_OK;
      if (is_in_flight) submitted = covey_submit(runtime, &op.request, &handle, &error);
      ASSERT_EQ(submitted, COVEY_OK) << error.message;
      // Now and then of another length on all ranks, under the name that it has had.
      std::vector<float> data = Given(rank, round, round % 40 == 7 ? 2000 : kElems);
      ASSERT_EQ(SumNow(runtime, "loss", &data), COVEY_OK);
      ExpectSum(data, size, round);
      if (!is_in_flight) continue;
      ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
      covey_release(runtime, handle);
      ExpectSum(large, size, round);
    }
  });
}

TEST_P(RepeatsTest, OfTwoThreads) {
  const int size = GetParam();
  RunRanks(size, "", [&](int rank, covey_runtime*& runtime) {
    const auto work = [&](const std::string& name) {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<float> data = Given(rank, round, kElems);
        ASSERT_EQ(SumNow(runtime, name, &data), COVEY_OK);
        ExpectSum(data, size, round);
      }
    };
    std::thread other([&] { work("b"); });
    work("a");
    other.join();
  });
}

TEST_P(RepeatsTest, ARankThatDeviatesIsNamedOnAllAndTheNextSumWorks) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "a rank alone deviates from no other";
  RunRanks(size, "", [&](int rank, covey_runtime*& runtime) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> data = Given(rank, round, kElems);
      const bool deviates = round % 4 == 3;
      if (deviates && rank == round % size) data.resize(kElems + 1);
      const std::vector<float> before = data;
      covey_error error = COVEY_INIT(covey_error);
      const covey_code code = SumNow(runtime, "loss", &data, nullptr, &error);
      ASSERT_EQ(code, deviates ? COVEY_MISMATCH : COVEY_OK) << error.message;
      if (!deviates) ExpectSum(data, size, round);
      if (!deviates) continue;
      ASSERT_EQ(data, before);
      ASSERT_NE(std::string(error.message).find("rank " + std::to_string(round % size)),
                std::string::npos)
          << error.message;
    }
  });
}

TEST_P(RepeatsTest, ARankThatLeavesIsNamed) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "there is no other rank that leaves";
  RunRanks(size, kLooksForLosses, [&](int rank, covey_runtime*& runtime) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> data = Given(rank, round, kElems);
      ASSERT_EQ(SumNow(runtime, "loss", &data), COVEY_OK);
    }
    if (rank == size - 1) {
      covey_runtime_free(runtime);
      runtime = nullptr;
      return;
    }
    std::vector<float> data = Given(rank, 0, kElems);
    covey_error error = COVEY_INIT(covey_error);
    EXPECT_EQ(SumNow(runtime, "loss", &data, nullptr, &error), COVEY_ABORTED);
    EXPECT_EQ(error.peer_rank, size - 1) << error.message;
    EXPECT_EQ(data, Given(rank, 0, kElems));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RepeatsTest, testing::Values(1, 2, 3, 5),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

}  // namespace
}  // namespace covey
