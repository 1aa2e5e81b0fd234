// A leader abandons an attempt that waits for a silent member, and a member that leaves makes none
// vain.
//
// Method: as tests/unit/replicated/replica_test.cc.
#include "core/replicated/leader_state.h"

#include <gtest/gtest.h>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

class LeaderStateTest : public ReplicaTest {
 protected:
  // The hub of a committed version, as the leader has it.
  int32_t HubOf(uint64_t version) { return replica(0).log().Find(version)->hub; }
};

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

// No piece comes, and one rank has not been heard for nearly as long: it is left out, and no link
// is to blame.
TEST_F(LeaderStateTest, WhoIsNearlySilentIsByNoHub) {
  numbers_ = 24;  // a shard for each rank
  Open(3, 100, {.permille = 600});
  for (const int32_t rank : {0, 1, 2}) replica(rank).set_max_wait(kNever);
  TrainTo(2, {0, 1, 2});
  Cut({{1, 2}, {2, 1}});
  for (const int32_t rank : {0, 1, 2}) Publish(rank);
  Ticks(5);
  Stop(2);
  TrainTo(3, {0, 1});
  EXPECT_EQ(replica(0).abandoned(), 1u);
  EXPECT_EQ(HubOf(3), -1);
}

// With models: rank 3 stops before it gives its part of the mean of {1 3}, while {0 2} have theirs.
// The leader, which is in the other group, makes the version again without it, and rank 1 has a
// mean.
TEST_F(LeaderStateTest, WhoIsSilentCostsItsGroupNoMean) {
  Open(4, 100, {}, {.group_size = 2, .sync_every = 1000});
  ASSERT_EQ(GroupsOf(4, 2, 3), (std::vector<int32_t>{0, 1, 0, 1}));
  TrainTo(2, {0, 1, 2, 3});
  for (const int32_t rank : {0, 1, 2, 3}) Publish(rank);
  Tick();
  Stop(3);
  Ticks(3);
  ASSERT_EQ(replica(0).fired(), 3u);
  ASSERT_EQ(replica(0).executed(), 2u);
  Ticks(40);
  EXPECT_EQ(replica(0).abandoned(), 1u);
  EXPECT_EQ(replica(0).term(), 1u);
  for (const int32_t rank : {0, 1, 2}) {
    ASSERT_GE(replica(rank).executed(), 3u) << rank;
    int64_t mean = 0;
    void* to[] = {&mean};
    Merged merged;
    replica(rank).Merge(3, to, &merged);
    EXPECT_EQ(merged.version, 3u) << rank;
    EXPECT_FALSE(merged.late) << rank;
    EXPECT_EQ(merged.count, rank == 1 ? 1 : 2) << rank;
    EXPECT_EQ(merged.record.contributions[3].count, 0u) << rank;
  }
  GoOn(3);
  TrainTo(8, {0, 1, 2, 3});
  EXPECT_EQ(replica(3).executed(), replica(0).executed());
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

// A link is cut between two ranks, of which neither leads: one attempt is vain, then versions go by
// the leader; when the link is there again, they go by the plan without a hub.
TEST_F(LeaderStateTest, WhatACutLinkCarriedGoesByTheLeader) {
  for (const bool both_ways : {false, true}) {
    SCOPED_TRACE(both_ways);
    Close();
    numbers_ = 24;  // a shard for each rank
    Open(3);
    TrainTo(2, {0, 1, 2});
    Cut(both_ways ? Links{{1, 2}, {2, 1}} : Links{{1, 2}});
    TrainTo(3, {0, 1, 2});
    EXPECT_EQ(replica(0).abandoned(), 1u);
    EXPECT_EQ(HubOf(3), 0);
    const Time began = now_;
    uint64_t version = 3;
    while (now_ < began + 60 * kGrace) TrainTo(++version, {0, 1, 2});
    // Each attempt without a hub doubles the time to the next.
    EXPECT_LE(replica(0).abandoned(), 5u);
    EXPECT_EQ(replica(0).term(), 1u);
    Cut({});
    while (HubOf(version) >= 0 && now_ < began + 200 * kGrace) TrainTo(++version, {0, 1, 2});
    TrainTo(version + 20, {0, 1, 2});
    EXPECT_EQ(HubOf(version + 20), -1);
    EXPECT_LE(replica(0).abandoned(), 5u);
    // Each step counts once.
    for (const int32_t rank : {0, 1, 2})
      EXPECT_EQ(replica(0).log().consumed()[static_cast<size_t>(rank)], replica(rank).step());
  }
}

// With models: the link of the group {1 3}, without the leader, is cut. One attempt is vain, then
// its mean is made by the leader, also when it has no other group beside it.
TEST_F(LeaderStateTest, WhatACutLinkOfAGroupCarriedGoesByTheLeader) {
  for (const bool both_ways : {false, true}) {
    SCOPED_TRACE(both_ways);
    Close();
    numbers_ = 24;
    Open(4, 100, {}, {.group_size = 2, .sync_every = 1000});
    TrainTo(2, {0, 1, 2, 3});
    Cut(both_ways ? Links{{1, 3}, {3, 1}} : Links{{1, 3}});
    uint64_t version = 2;
    const auto train = [&] {
      TrainTo(++version, {0, 1, 2, 3});
      for (const int32_t rank : {0, 1, 2, 3}) {
        std::vector<int64_t> mean(numbers_);
        void* to[] = {mean.data()};
        Merged merged;
        replica(rank).Merge(version, to, &merged);
        EXPECT_EQ(merged.count, 2) << "version " << version << ", rank " << rank;
        EXPECT_FALSE(merged.late) << "version " << version << ", rank " << rank;
      }
    };
    train();
    EXPECT_EQ(replica(0).abandoned(), 1u);
    EXPECT_EQ(HubOf(3), 0);
    const Time began = now_;
    while (now_ < began + 20 * kGrace) train();
    EXPECT_LE(replica(0).abandoned(), 4u);
    Cut({});
    while (HubOf(version) >= 0 && now_ < began + 100 * kGrace) train();
    for (int i = 0; i < 8; ++i) train();
    EXPECT_EQ(HubOf(version), -1);
    EXPECT_LE(replica(0).abandoned(), 4u);
    EXPECT_EQ(replica(0).term(), 1u);
  }
}

// A rank is cut off, and heard again by the leader alone: no attempt is vain for the link that the
// third rank still lacks.
TEST_F(LeaderStateTest, WhatComesBackComesBackByTheLeader) {
  numbers_ = 24;
  Open(3);
  TrainTo(2, {0, 1, 2});
  Cut({{0, 2}, {1, 2}, {2, 0}, {2, 1}});
  const Time began = now_;
  uint64_t version = 4;
  TrainTo(version, {0, 1});
  while (now_ < began + 10 * kGrace) Tick();
  const uint64_t abandoned = replica(0).abandoned();
  Cut({{1, 2}, {2, 1}});
  const Time back = now_;
  const Time silence = back - began;
  while (now_ < back + silence - 2 * kGrace) TrainTo(++version, {0, 1, 2});
  EXPECT_EQ(HubOf(version), 0);
  Cut({});
  while (now_ < back + silence + 2 * kGrace) TrainTo(++version, {0, 1, 2});
  EXPECT_EQ(HubOf(version), -1);
  EXPECT_EQ(replica(0).abandoned(), abandoned);
  EXPECT_EQ(replica(0).term(), 1u);
}

}  // namespace
}  // namespace covey
