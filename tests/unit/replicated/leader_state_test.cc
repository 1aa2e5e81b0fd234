// A leader abandons an attempt that waits for a silent member, and a member that leaves makes none
// vain.
//
// Method: as tests/unit/replicated/replica_test.cc.
#include "core/replicated/leader_state.h"

#include <gtest/gtest.h>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

using LeaderStateTest = ReplicaTest;

// Its contribution is in the proposal, and its content is still with it.
TEST_F(LeaderStateTest, WhoIsSilentIsLeftOutAndCountsOnceLater) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  for (const int32_t rank : {0, 1, 2}) Publish(rank);
  Tick();
  Stop(2);
  Ticks(3);
  ASSERT_EQ(replica(0).fired(), 3u);
  ASSERT_EQ(replica(0).executed(), 2u);
  Ticks(30);
  EXPECT_EQ(replica(0).abandoned(), 1u);
  RoundRecord record;
  int64_t sum = 0;
  void* to[] = {&sum};
  ASSERT_EQ(replica(0).Read(3, to, &record), Found::kYes);
  EXPECT_EQ(sum, 2);
  EXPECT_EQ(record.contributions[2].count, 0u);
  GoOn(2);
  TrainTo(8, {0, 1, 2});
  uint64_t next = 3;  // of its steps
  for (uint64_t version = 4; version <= replica(1).executed(); ++version) {
    ASSERT_EQ(replica(1).Read(version, to, &record), Found::kYes);
    const Contribution& own = record.contributions[2];
    if (own.count == 0) continue;
    EXPECT_EQ(own.first, next);
    next = own.last + 1;
  }
  EXPECT_GT(next, 3u);
}

// A member that left while others wait for its pieces would make the attempt vain.
TEST_F(LeaderStateTest, WhoLeavesStaysWhileAVersionIsMade) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  for (const int32_t rank : {0, 1, 2}) Publish(rank);
  Ticks(2);
  Leave(2);
  Ticks(10);
  EXPECT_EQ(replica(0).executed(), 3u);
  EXPECT_EQ(replica(0).abandoned(), 0u);
  EXPECT_TRUE(replica(2).has_departed());
}

}  // namespace
}  // namespace covey
