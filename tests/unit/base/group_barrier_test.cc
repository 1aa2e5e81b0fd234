// The end of an epoch: which members are missing, when max_wait is over, and what is said then.
#include "core/base/group_barrier.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace covey {
namespace {

using Phase = GroupBarrier::Phase;

Group MakeGroup() { return {.key = 7, .members = {Rank{2}, Rank{3}, Rank{5}}}; }

TEST(GroupBarrierTest, MissingAreThoseThatHaveNotPassedInOrder) {
  const auto even = [](int32_t i) { return i % 2 == 0; };
  EXPECT_EQ(MissingMembers(5, even), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(MissingMembers(1, even), std::vector<int32_t>());
}

TEST(GroupBarrierTest, TheTimeRunsFromTheEntryIntoAPhaseAndIsNotRestartedByAnotherEntry) {
  const Group group = MakeGroup();
  GroupBarrier barrier("net", &group);
  EXPECT_EQ(barrier.phase(), Phase::kTrains);
  EXPECT_TRUE(barrier.Enter(Phase::kFinishes, 100));
  EXPECT_EQ(barrier.Left(50, 100), 50);
  EXPECT_FALSE(barrier.Enter(Phase::kFinishes, 130));
  EXPECT_EQ(barrier.Left(50, 130), 20);
  EXPECT_EQ(barrier.Left(50, 150), 0);
  EXPECT_EQ(barrier.Left(50, 1000), 0);
  barrier.Restart(1000);
  EXPECT_EQ(barrier.Left(50, 1000), 50);
  EXPECT_TRUE(barrier.Enter(Phase::kApplies, 1020));
  EXPECT_EQ(barrier.Left(50, 1020), 50);
  EXPECT_EQ(barrier.Left(kNever, 2000), kNever - 980);
}

TEST(GroupBarrierTest, ATimeOutNamesTheMissingAndThePhase) {
  const Group group = MakeGroup();
  GroupBarrier barrier("net", &group);
  barrier.Enter(Phase::kFinishes, 0);
  const Status finishing = barrier.TimedOut({1, 2}, 500 * kMillisecond, "train on");
  EXPECT_EQ(finishing.code(), StatusCode::kTimeout);
  EXPECT_EQ(finishing.peer(), Rank{3});
  EXPECT_EQ(finishing.message(),
            "finish() of 'net' has waited 500 ms (max_wait) for rank 3, 5: train on");
  barrier.Enter(Phase::kApplies, 0);
  EXPECT_EQ(barrier.TimedOut({0}, kSecond, "train on").message(),
            "finish() of 'net' has waited 1000 ms (max_wait) for rank 2 to apply what all had: "
            "train on");
  // All had published, and the last version is still being made.
  barrier.Enter(Phase::kFinishes, 0);
  EXPECT_NE(barrier.TimedOut({}, kSecond, "").message().find("for the last version"),
            std::string::npos);
}

}  // namespace
}  // namespace covey
