// Goal: the C API of pairs over real shared memory: nothing that is learnt is lost, finish() leaves
// the exact mean on all, who stops or leaves holds up nobody, and bad calls are refused.
// Method: ranks as threads; progress in whole numbers, so that sums are exact.
#include "core/api/covey_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <string>
#include <vector>

#include "tests/contract/parsed_method.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int kSteps = 60;
constexpr int64_t kCounts[] = {1000, 70000};
constexpr covey_dtype kTypes[] = {COVEY_FLOAT32, COVEY_FLOAT64};

// One rank: its model, and what it trains it with.
struct Student {
  explicit Student(covey_runtime* of) : runtime(of), single(1000), whole(70000) {
    spans[0] = single.data();
    spans[1] = whole.data();
  }
  covey_code Open(const char* method, const char* name = "net") {
    covey_pairs_config config = COVEY_INIT(covey_pairs_config);
    config.name = name;
    const ParsedMethod parsed(method, &error);
    if (parsed.code != COVEY_OK) return parsed.code;
    config.method = parsed.get();
    config.num_spans = 2;
    config.dtypes = kTypes;
    config.counts = kCounts;
    return covey_pairs_open(runtime, &config, spans, &pairs, &error);
  }
  void Learn(double by) {
    for (float& one : single) one += static_cast<float>(by);
    for (double& one : whole) one += by;
  }
  covey_code Step(covey_pairs_met* met = nullptr) {
    return covey_pairs_step(runtime, pairs, spans, met, &error);
  }
  covey_code Finish(int64_t timeout_ns = -1) {
    return covey_pairs_finish(runtime, pairs, spans, timeout_ns, &error);
  }

  covey_runtime* runtime;
  covey_pairs pairs = 0;
  std::vector<float> single;
  std::vector<double> whole;
  void* spans[2];
  covey_error error = COVEY_INIT(covey_error);
};

class PairsTest : public testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(PairsTest, WhatAllHaveLearntIsInTheMean) {
  const auto [size, method] = GetParam();
  std::vector<double> ends(static_cast<size_t>(size));
  std::atomic<int> met_somebody{0};
  std::barrier all_have_begun(size);  // else each may be alone from its begin to its end
  RunRanks(size, "", [&, size = size, method = method](int rank, covey_runtime*& runtime) {
    Student student(runtime);
    ASSERT_EQ(student.Open(method), COVEY_OK) << student.error.message;
    double expected = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < kSteps; ++step) {
        student.Learn(rank + 1);
        covey_pairs_met met = COVEY_INIT(covey_pairs_met);
        ASSERT_EQ(student.Step(&met), COVEY_OK) << student.error.message;
        if (met.partner >= 0) ++met_somebody;
        EXPECT_NE(met.partner, rank);
        if (step == 0) all_have_begun.arrive_and_wait();
      }
      ASSERT_EQ(student.Finish(), COVEY_OK) << student.error.message;
      // The mean of 1 .. size, kSteps times each.
      expected += kSteps * (size + 1) / 2.0;
      for (const double one : student.whole) ASSERT_NEAR(one, expected, 1e-6);
      for (const float one : student.single) ASSERT_NEAR(one, expected, 0.05);
    }
    ends[static_cast<size_t>(rank)] = student.whole[0];
    covey_pairs_close(runtime, student.pairs);
  });
  for (const double one : ends) EXPECT_EQ(one, ends[0]);
  if (size > 1) {
    EXPECT_GT(met_somebody, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PairsTest,
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

uint64_t StatOf(covey_runtime* runtime, const std::string& key) {
  std::string json(covey_stats(runtime, nullptr, 0), '\0');
  covey_stats(runtime, json.data(), json.size());
  const size_t at = json.find("\"" + key + "\":");
  return at == std::string::npos ? UINT64_MAX : std::stoull(json.substr(at + key.size() + 3));
}

// 1000 float32 in one byte each and 16 bytes of a chunk, 70000 float64 as they are; what was sent
// whole in between is counted too.
TEST(PairsCodecTest, WhatTravelsIsCounted) {
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Student student(runtime);
    ASSERT_EQ(student.Open("adpsgd:codec=lattice@8"), COVEY_OK) << student.error.message;
    uint64_t met_one = 0;
    for (int step = 0; step < kSteps; ++step) {
      student.Learn(rank + 1);
      covey_pairs_met met = COVEY_INIT(covey_pairs_met);
      ASSERT_EQ(student.Step(&met), COVEY_OK);
      met_one += met.partner >= 0 ? 1 : 0;
    }
    const uint64_t decoded = StatOf(runtime, "pair_decoded"),
                   repaired = StatOf(runtime, "pair_repaired"),
                   bytes = StatOf(runtime, "pair_bytes");
    EXPECT_GE(decoded, 2 * met_one);  // Those that were called off are counted, too.
    EXPECT_LE(repaired, decoded);
    EXPECT_EQ(met_one > 0, repaired > 0);  // The first is: how far models are apart is not known.
    const uint64_t tries = decoded / 2;
    EXPECT_GE(bytes, tries * 2 * (1016 + 560000) + repaired / 2 * 8000);
    EXPECT_LE(bytes, tries * 2 * (1016 + 560000) + repaired * 8000);
    EXPECT_EQ(student.Finish(), COVEY_OK);
    covey_pairs_close(runtime, student.pairs);
    EXPECT_EQ(StatOf(runtime, "pair_decoded"), decoded);
  });
}

TEST(PairsCodecTest, WhatHasNoFloat32IsRefused) {
  RunRanks(1, "", [&](int, covey_runtime*& runtime) {
    const covey_dtype type = COVEY_INT32;
    const int64_t count = 8;
    int32_t numbers[8] = {};
    const void* spans[] = {numbers};
    covey_pairs_config config = COVEY_INIT(covey_pairs_config);
    config.name = "net";
    covey_error error = COVEY_INIT(covey_error);
    const ParsedMethod parsed("swarm:codec=lattice@8", &error);
    config.method = parsed.get();
    config.num_spans = 1;
    config.dtypes = &type;
    config.counts = &count;
    covey_pairs pairs = 0;
    EXPECT_EQ(covey_pairs_open(runtime, &config, spans, &pairs, &error), COVEY_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find("for float32, and no parameter is of it"),
              std::string::npos)
        << error.message;
  });
}

// Wherever ranks are in their steps, and whatever others have averaged meanwhile: once all have
// settled, what they hold is all that was learnt, and they train on from there.
TEST(PairsSettleTest, WhatRanksHoldThenIsAllThatWasLearnt) {
  for (const char* method : {"adpsgd", "swarm:H=7", "swarm:H=7,exchange=nonblocking"}) {
    constexpr int kSize = 4;
    double held[kSize];
    RunRanks(kSize, "", [&](int rank, covey_runtime*& runtime) {
      Student student(runtime);
      ASSERT_EQ(student.Open(method), COVEY_OK) << student.error.message;
      for (int step = 0; step < kSteps; ++step) {
        student.Learn(rank + 1);
        ASSERT_EQ(student.Step(), COVEY_OK) << student.error.message;
      }
      ASSERT_EQ(covey_pairs_settle(runtime, student.pairs, student.spans, -1, &student.error),
                COVEY_OK)
          << student.error.message;
      held[rank] = student.whole[0];
      for (const double one : student.whole) ASSERT_EQ(one, held[rank]);
      student.Learn(rank + 1);
      ASSERT_EQ(student.Step(), COVEY_OK);
      ASSERT_EQ(student.Finish(), COVEY_OK) << student.error.message;
      EXPECT_NEAR(student.whole[0], (kSteps + 1) * (kSize + 1) / 2.0, 1e-6);
    });
    EXPECT_NEAR(std::accumulate(held, held + kSize, 0.0), kSteps * kSize * (kSize + 1) / 2.0, 1e-6)
        << method;
    // They are each rank's own; two may have averaged since their last steps, but not all four.
    EXPECT_NE(*std::min_element(held, held + kSize), *std::max_element(held, held + kSize));
  }
}

TEST(PairsSettleTest, SomebodyMissingIsNamedAndTrainingGoesOn) {
  std::atomic<bool> over{false};
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Student student(runtime);
    ASSERT_EQ(student.Open("swarm:H=3,max_wait=30ms"), COVEY_OK) << student.error.message;
    const auto settle = [&] {
      return covey_pairs_settle(runtime, student.pairs, student.spans, -1, &student.error);
    };
    while (rank == 1 && !over) std::this_thread::yield();
    if (rank == 0) {
      student.Learn(1);
      ASSERT_EQ(student.Step(), COVEY_OK);
      EXPECT_EQ(settle(), COVEY_TIMEOUT);
      EXPECT_EQ(student.error.peer_rank, 1);
      EXPECT_EQ(student.whole[0], 1);
      student.Learn(1);
      EXPECT_EQ(student.Step(), COVEY_OK);
      over = true;
    }
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = settle();
    EXPECT_EQ(code, COVEY_OK) << student.error.message;
    EXPECT_EQ(student.whole[0], rank == 0 ? 2 : 0);
  });
}

// Rank 1 does nothing at all; rank 0 trains, averages with it, and is refused only by finish().
TEST(PairsFaultTest, WhoDoesNothingHoldsUpNobody) {
  std::atomic<bool> over{false};
  std::barrier both_have_begun(2);  // else rank 0 finds nobody at its first steps
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Student student(runtime);
    EXPECT_EQ(student.Open("adpsgd:max_wait=30ms"), COVEY_OK) << student.error.message;
    both_have_begun.arrive_and_wait();
    if (rank == 1) {
      while (!over) std::this_thread::yield();
      EXPECT_EQ(student.Finish(), COVEY_OK) << student.error.message;
      return;
    }
    int met_one = 0;
    for (int step = 0; step < kSteps; ++step) {
      student.Learn(1);
      covey_pairs_met met = COVEY_INIT(covey_pairs_met);
      ASSERT_EQ(student.Step(&met), COVEY_OK);
      met_one += met.partner == 1 ? 1 : 0;
    }
    EXPECT_EQ(met_one, kSteps);
    const std::vector<double> before = student.whole;
    EXPECT_EQ(student.Finish(), COVEY_TIMEOUT);
    EXPECT_EQ(student.error.peer_rank, 1);
    EXPECT_NE(std::string(student.error.message).find("30 ms (max_wait) for rank 1"),
              std::string::npos)
        << student.error.message;
    EXPECT_EQ(student.whole, before);
    student.Learn(1);
    EXPECT_EQ(student.Step(), COVEY_OK);
    over = true;
    covey_code code = COVEY_TIMEOUT;
    while (code == COVEY_TIMEOUT) code = student.Finish();
    EXPECT_EQ(code, COVEY_OK) << student.error.message;
    for (const double one : student.whole) ASSERT_NEAR(one, (kSteps + 1) / 2.0, 1e-9);
  });
}

TEST(PairsFaultTest, AnybodyLooksAtAnybodyAlone) {
  RunRanks(3, "", [&](int rank, covey_runtime*& runtime) {
    Student student(runtime);
    ASSERT_EQ(student.Open("adpsgd"), COVEY_OK);
    student.Learn(rank + 1);
    if (rank == 0) {
      Student other(runtime);
      int32_t whole = 0;
      while (whole == 0)
        ASSERT_EQ(covey_pairs_look(runtime, student.pairs, 1, other.spans, &whole, nullptr),
                  COVEY_OK);
      EXPECT_EQ(other.whole[0], 0);
      EXPECT_EQ(covey_pairs_look(runtime, student.pairs, 3, other.spans, &whole, &student.error),
                COVEY_INVALID_ARGUMENT);
      EXPECT_STREQ(student.error.message, "pairs: rank 3 is not a member of their group");
    }
    // Nobody has handed anything in before: all wait for rank 0 here.
    covey_request request = COVEY_INIT(covey_request);
    covey_handle handle = 0;
    request.kind = COVEY_BARRIER;
    ASSERT_EQ(covey_submit(runtime, &request, &handle, nullptr), COVEY_OK);
    ASSERT_EQ(covey_wait(runtime, handle, -1, nullptr), COVEY_OK);
    covey_release(runtime, handle);
    EXPECT_EQ(student.Step(), COVEY_OK);
    EXPECT_EQ(student.Finish(), COVEY_OK);
    for (const double one : student.whole) ASSERT_NEAR(one, 2, 1e-9);
  });
}

TEST(PairsFaultTest, RanksThatDifferAreToldHow) {
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    Student student(runtime);
    EXPECT_EQ(student.Open(rank == 0 ? "adpsgd" : "adpsgd:seed=2"), COVEY_MISMATCH);
    EXPECT_NE(std::string(student.error.message).find("seed=2"), std::string::npos)
        << student.error.message;
    EXPECT_EQ(student.Open("local", "other"), COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(student.Open("adpsgd", "again"), COVEY_OK) << student.error.message;
    EXPECT_EQ(student.Finish(), COVEY_OK);
  });
}

TEST(PairsFaultTest, BadCallsAreRefused) {
  RunRanks(3, "", [&](int, covey_runtime*& runtime) {
    Student student(runtime);
    EXPECT_EQ(student.Open("adpsgd:topology=bipartite"), COVEY_INVALID_ARGUMENT);
    EXPECT_NE(std::string(student.error.message).find("needs an even number of ranks, not 3"),
              std::string::npos)
        << student.error.message;
    EXPECT_EQ(student.Step(), COVEY_INVALID_ARGUMENT);
    EXPECT_STREQ(student.error.message, "there are no such pairs, or they were closed");
    ASSERT_EQ(student.Open("adpsgd"), COVEY_OK) << student.error.message;
    void* none[] = {student.spans[0], nullptr};
    EXPECT_EQ(covey_pairs_step(runtime, student.pairs, none, nullptr, &student.error),
              COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(student.Finish(), COVEY_OK);
  });
}

}  // namespace
}  // namespace covey
