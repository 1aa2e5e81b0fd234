// Goal: rounds of models between ranks that do not all share memory: each rank gets the mean of its
// group, all have one model in the end, and a rank that is stopped or dead holds up no other.
// Method: ranks as threads on hosts of several make-ups, over a network that stops a rank between
// two messages; models in whole numbers, so that means are exact. Versions are counted, not
// seconds.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/partial/groups.h"
#include "tests/contract/learner.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr Place kThree{3, kOverNetwork}, kFour{4, kOverNetwork}, kTwoByTwo{4, kOverNetwork, 2};

class HostsModelsTest : public testing::TestWithParam<Place> {};

// Each waits for all: models are the groups' means, with the same groups as on one host.
TEST_P(HostsModelsTest, WithAllGroupsHaveTheirMeans) {
  const int size = GetParam().size;
  RunRanks(GetParam(), [size](int rank, covey_runtime*& runtime) {
    Learner learner(runtime, "wagma:admit=all,tau=1000,S=2,max_wait=60s");
    ASSERT_EQ(learner.code, COVEY_OK) << learner.error.message;
    ExpectGroupMeans(&learner, rank, size, {.group_size = 2});
  });
}

// Groups of ranks of one host, and in every third version of ranks of both.
TEST(HostsModelsCrossingTest, GroupsAreWithinHostsAndBetweenThem) {
  RunRanks(kTwoByTwo, [](int rank, covey_runtime*& runtime) {
    Learner learner(runtime, "wagma:admit=all,tau=1000,S=2,max_wait=60s,cross_every=3");
    ASSERT_EQ(learner.code, COVEY_OK) << learner.error.message;
    ExpectGroupMeans(&learner, rank, 4, {.group_size = 2, .hosts = {0, 0, 1, 1}, .cross_every = 3});
  });
}

// Ranks that move towards different points: models stay between these (rows of the averaging sum
// to 1), and the end is one model.
TEST_P(HostsModelsTest, AllHaveOneModelInTheEnd) {
  const int size = GetParam().size;
  for (const char* method : {"wagma", "wagma:tau=3", "wagma:tau=7,log=1", "wagma:S=1,tau=5",
                             "wagma:tau=5,cross_every=2"}) {
    std::vector<std::vector<float>> ends(static_cast<size_t>(size));
    RunRanks(GetParam(), [&, method](int rank, covey_runtime*& runtime) {
      Learner learner(runtime, method);
      ASSERT_EQ(learner.code, COVEY_OK) << learner.error.message;
      learner.Set(10.0 * rank);
      for (int step = 0; step < 20; ++step) {
        for (float& element : learner.floats)
          element += 0.1f * (10.0f * static_cast<float>(rank) - element);
        learner.Step();
        ASSERT_GE(learner.floats[0], -1e-3f);
        ASSERT_LE(learner.floats[4], 10.0f * static_cast<float>(size) + 4.1f);
      }
      learner.Publish();
      ASSERT_EQ(learner.Finish(), COVEY_OK) << learner.error.message;
      ASSERT_EQ(learner.Merge(learner.executed()), COVEY_OK) << learner.error.message;
      ends[static_cast<size_t>(rank)] = learner.floats;
    });
    for (const auto& end : ends) EXPECT_TRUE(end == ends[0]) << method;
  }
}

INSTANTIATE_TEST_SUITE_P(Places, HostsModelsTest, testing::Values(kThree, kFour, kTwoByTwo));

constexpr const char* kImpatient = "wagma:S=2,tau=3,max_wait=20ms";
constexpr int64_t kBefore = 5, kMore = 20;  // versions

// The one that is stopped goes on from the newest version, and ends with the others' model.
TEST(HostsModelsFaultsTest, WhoIsStoppedHoldsUpNobodyAndCatchesUp) {
  for (const int stopped : {0, 2}) {
    std::atomic<int> ahead{0};
    std::vector<std::vector<float>> ends(3);
    RunRanks(3, kOverNetwork, [&](int rank, covey_runtime*& runtime) {
      Learner learner(runtime, kImpatient);
      ASSERT_EQ(learner.code, COVEY_OK) << learner.error.message;
      learner.Set(8.0 * rank);
      for (int64_t step = 0; step < kBefore; ++step) learner.Step();
      const int64_t enough = learner.executed() + kMore;
      if (rank == stopped) {
        ThreadNetwork::Current()->SetStopped(rank, true);
        while (ahead.load() < 2) std::this_thread::yield();
        ThreadNetwork::Current()->SetStopped(rank, false);
        learner.Step();
      } else {
        while (learner.executed() < enough) learner.Step();
        ++ahead;
      }
      learner.Publish();
      covey_code code = COVEY_TIMEOUT;
      while (code == COVEY_TIMEOUT) code = learner.Finish();
      ASSERT_EQ(code, COVEY_OK) << learner.error.message;
      ASSERT_EQ(learner.Merge(learner.executed()), COVEY_OK) << learner.error.message;
      EXPECT_GE(learner.executed(), enough);
      ends[static_cast<size_t>(rank)] = learner.floats;
    });
    for (const auto& end : ends) EXPECT_TRUE(end == ends[0]) << stopped << " was stopped";
  }
}

TEST(HostsModelsFaultsTest, WhoIsKilledHoldsUpNobody) {
  for (const int killed : {0, 2}) {
    std::atomic<int> done{0};
    std::vector<std::vector<float>> ends(3);
    const std::string settings = std::string(kOverNetwork) + "\n" + kLooksForLosses;
    RunRanks(3, settings.c_str(), [&](int rank, covey_runtime*& runtime) {
      Learner learner(runtime, kImpatient);
      ASSERT_EQ(learner.code, COVEY_OK) << learner.error.message;
      learner.Set(8.0 * rank);
      for (int64_t step = 0; step < kBefore; ++step) learner.Step();
      if (rank == killed) {
        ThreadNetwork::Current()->Kill(rank);
        while (done.load() < 2) std::this_thread::yield();
        return;
      }
      const int64_t enough = learner.executed() + kMore;
      while (learner.executed() < enough) learner.Step();
      learner.Publish();
      covey_code code = COVEY_TIMEOUT;
      while (code == COVEY_TIMEOUT) code = learner.Finish();
      ASSERT_EQ(code, COVEY_OK) << learner.error.message;
      ASSERT_EQ(learner.Merge(learner.executed()), COVEY_OK) << learner.error.message;
      ends[static_cast<size_t>(rank)] = learner.floats;
      ++done;
    });
    EXPECT_TRUE(ends[1] == ends[static_cast<size_t>(2 - killed)]) << killed << " was killed";
  }
}

}  // namespace
}  // namespace covey
