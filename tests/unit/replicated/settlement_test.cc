// Where ranks go on from finish() without one that is missing, the last version is settled: a rank
// that comes later ends with it, whichever rank leads, and until one of them trains on.
//
// Method: as tests/unit/replicated/replica_test.cc.
#include "core/replicated/settlement.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

class SettlementTest : public ReplicaTest {
 protected:
  void Await(const std::function<bool()>& is_done, const char* what) {
    for (int i = 0; i < 400; ++i, Tick())
      if (is_done()) return;
    FAIL() << what;
  }

  // These finish after one step more, and give up; the others are missing.
  void GiveUp(const std::vector<int32_t>& ranks) {
    for (const int32_t rank : ranks) {
      Publish(rank);
      replica(rank).Finish();
    }
    for (const int32_t rank : ranks)
      Await([&] { return replica(rank).HasGivenUp(); }, "a finished rank gives up");
  }

  void GoOnWithout(const std::vector<int32_t>& ranks) {
    for (const int32_t rank : ranks)
      Await([&] { return replica(rank).GoOnWithout(); }, "a rank goes on");
  }

  // It comes to finish(), and ends.
  void End(int32_t rank) {
    replica(rank).Finish();
    Await([&] { return replica(rank).IsFlushed(); }, "a late rank ends");
  }

  // Its model after it.
  int64_t Merge(int32_t rank, uint64_t version, Merged* merged) {
    int64_t model = 0;
    void* to[] = {&model};
    replica(rank).Merge(version, to, merged);
    return model;
  }
};

TEST_F(SettlementTest, WhoComesLaterEndsWithTheSameVersion) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  GiveUp({0, 1});
  GoOnWithout({0});
  const uint64_t last = replica(0).executed();
  Ticks(2);
  Replica& late = replica(2);
  EXPECT_EQ(late.step(), 2u);
  Publish(2);
  EXPECT_EQ(late.step(), 2u) << "it has published nothing";
  EXPECT_FALSE(late.IsLeftBehind()) << "they may train on";
  Await([&] { return late.IsLeftBehind(); }, "it is left behind");
  Publish(2);
  EXPECT_TRUE(late.IsLeftBehind()) << "it waits for max_wait once, not with each step";
  End(2);
  EXPECT_EQ(late.executed(), last);
  EXPECT_EQ(late.dropped(), 2u);
  Ticks(40);
  EXPECT_EQ(replica(0).executed(), last);
}

TEST_F(SettlementTest, WhoHasEndedWithAllGoesOnThoughOthersDoNotMeet) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  for (const int32_t rank : {0, 1, 2}) replica(rank).Finish();
  Await([&] { return replica(1).IsFlushed(); }, "all have finished");
  const uint64_t last = replica(1).executed();
  replica(1).GoOn();
  replica(1).Meet();
  Ticks(3);
  EXPECT_FALSE(replica(1).Unmet().empty());
  GoOnWithout({1});
  TrainTo(last + 2, {0, 1, 2});
}

// It has not heard of it when it publishes: its leader knows better.
TEST_F(SettlementTest, WhatWasPublishedSinceIsDropped) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Cut({{0, 2}});
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t last = replica(0).executed();
  Publish(2);
  ASSERT_EQ(replica(2).step(), 3u);
  Cut({});
  Ticks(3);
  End(2);
  EXPECT_EQ(replica(2).executed(), last);
  EXPECT_EQ(replica(2).dropped(), 1u);
  EXPECT_TRUE(replica(2).pending().empty());
  // They train on together, and that step is in no version.
  for (const int32_t rank : {0, 1, 2}) replica(rank).GoOn();
  TrainTo(last + 2, {0, 1, 2});
  TrainTo(last + 5, {0, 1, 2});
  uint64_t count = 0;
  for (uint64_t version = last + 1; version <= replica(1).executed(); ++version) {
    RoundRecord record;
    ASSERT_EQ(replica(1).Read(version, {}, &record), Found::kYes);
    count += record.contributions[2].count;
    EXPECT_TRUE(record.contributions[2].count == 0 || record.contributions[2].first > last);
  }
  EXPECT_GT(count, 0u);
}

TEST_F(SettlementTest, WhoTrainsOnIsInVersions) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t last = replica(0).executed();
  Publish(0);
  replica(0).Finish();
  Await([&] { return replica(0).executed() > last; }, "its step is in a version");
  TrainTo(last + 3, {1, 2});
}

TEST_F(SettlementTest, ALaterLeaderKnowsIt) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t last = replica(1).executed();
  Stop(0);
  for (const int32_t rank : {1, 2, 3, 4}) replica(rank).OnLoss(0);
  Publish(2);
  Publish(3);
  Publish(4);
  for (const int32_t rank : {2, 3, 4}) replica(rank).Finish();
  for (const int32_t rank : {2, 3, 4})
    Await([&] { return replica(rank).IsFlushed(); }, "a late rank ends");
  EXPECT_TRUE(replica(1).leads());
  for (const int32_t rank : {1, 2, 3, 4}) EXPECT_EQ(replica(rank).executed(), last) << rank;
}

// The one that goes on leads a minority: it learns that only once it has a majority.
TEST_F(SettlementTest, ALeaderAloneSettlesNothing) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  GiveUp({0});
  Cut({{0, 1}, {0, 2}});
  Ticks(2);
  EXPECT_FALSE(replica(0).GoOnWithout());
  Ticks(5);
  EXPECT_FALSE(replica(0).GoOnWithout());
  Cut({});
  GoOnWithout({0});
}

// Two of five know what is settled: a later leader may make a version of it.
TEST_F(SettlementTest, NothingIsDroppedBeforeAMajorityKnows) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  GiveUp({0});
  Cut({{0, 1}, {0, 3}, {0, 4}});
  EXPECT_FALSE(replica(0).GoOnWithout());
  Publish(2);
  replica(2).Finish();
  Ticks(5);
  EXPECT_GT(replica(2).log().settled(), 0u);
  EXPECT_EQ(replica(2).dropped(), 0u);
  EXPECT_FALSE(replica(2).pending().empty());
  Cut({});
  Await([&] { return replica(2).dropped() == 1; }, "it is dropped");
}

// The link to all others is gone for good: max_wait is over all the same.
TEST_F(SettlementTest, WithoutAQuorumItGoesOnAllTheSame) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Publish(1);
  replica(1).Finish();
  Ticks(2);
  Stop(0);
  Stop(2);
  Await([&] { return replica(1).HasGivenUp(); }, "it gives up");
  GoOnWithout({1});
}

TEST_F(SettlementTest, WhoWasStoppedWhileTheOthersLeftEndsWithTheirVersion) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t last = replica(0).executed();
  Ticks(20);
  GoOn(2);
  Ticks(20);
  ASSERT_EQ(replica(2).executed(), last);
  Stop(2);
  Leave(0);
  Leave(1);
  Ticks(80);
  ASSERT_TRUE(replica(0).has_departed() && replica(1).has_departed());
  GoOn(2);
  Publish(2);
  End(2);
  EXPECT_EQ(replica(2).executed(), last);
}

TEST_F(SettlementTest, WhoHasGoneKeepsAStateForThoseThatComeLater) {
  Open(3, 2);
  TrainTo(1, {0, 1, 2});
  RoundRecord record;
  ASSERT_EQ(replica(2).Read(1, {}, &record), Found::kYes);
  Stop(2);
  TrainTo(6, {0, 1});
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t last = replica(0).executed();
  for (const int32_t rank : {0, 1}) {
    for (uint64_t version = 1; version <= last; ++version)
      ASSERT_NE(replica(rank).Read(version, {}, &record), Found::kNotYet);
    ASSERT_TRUE(replica(rank).IsAsked(last, now_)) << rank;
    replica(rank).Give(last, Bytes(3, static_cast<std::byte>(rank)));
    EXPECT_FALSE(replica(rank).IsAsked(last, now_));
    replica(rank).Leave();  // its trainer has gone, and its replica is there
  }
  GoOn(2);
  Await([&] { return replica(2).executed() == last; }, "it has caught up");
  ASSERT_EQ(replica(2).Read(2, {}, &record), Found::kGone);
  Replica::Snapshot snapshot;
  Await([&] { return replica(2).RequestSnapshot(&snapshot); }, "it gets a snapshot");
  EXPECT_EQ(snapshot.version, last);
  EXPECT_EQ(snapshot.state.size(), 3u);
  End(2);
}

// The attempt of a version that the leader has given up: it becomes whole elsewhere afterwards.
TEST_F(SettlementTest, WhatWasGivenUpIsNotAccepted) {
  numbers_ = 24;  // a shard for each rank
  Open(3);
  TrainTo(2, {0, 1, 2});
  for (const int32_t rank : {0, 1}) replica(rank).Finish();
  Ticks(2);
  Publish(2);
  Cut({{2, 1}});
  Ticks(4);
  Stop(2);
  ASSERT_EQ(replica(0).executed(), 2u);
  const auto settles = [&] {
    replica(0).GoOnWithout();
    return replica(0).log().settled() > 0;
  };
  Await(settles, "the leader settles");
  Cut({});
  Ticks(1);  // the message of the leader, then the pieces of rank 2
  EXPECT_GT(replica(1).log().settled(), 0u);
  EXPECT_FALSE(replica(1).log().uncommitted().has_value());
}

// Models: the mean that it was missing in, as it is; also if it has published none.
TEST_F(SettlementTest, WhoComesLaterTakesTheMean) {
  for (const bool has_published : {true, false}) {
    SCOPED_TRACE(has_published);
    Close();
    Open(3, 100, {}, {.group_size = 3, .sync_every = 1000});
    TrainTo(2, has_published ? std::vector<int32_t>{0, 1, 2} : std::vector<int32_t>{0, 1});
    GiveUp({0, 1});
    GoOnWithout({0, 1});
    const uint64_t last = replica(0).executed();
    Ticks(5);
    const int64_t other = 1000;
    std::memcpy(replica(2).open(), &other, sizeof(other));
    EXPECT_EQ(replica(2).Publish({}), last + 1);
    End(2);
    EXPECT_EQ(replica(2).executed(), last);
    Merged merged;
    EXPECT_EQ(Merge(2, last, &merged), 1);
    EXPECT_EQ(merged.version, last);
  }
}

// Models: all that it had was dropped, and the settled version is not the last any more.
TEST_F(SettlementTest, WhoseStepsAreAllDroppedTakesALaterMean) {
  Open(3, 100, {}, {.group_size = 3, .sync_every = 1000});
  TrainTo(2, {0, 1});
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t settled = replica(0).executed();
  Ticks(5);
  const int64_t other = 1000;
  std::memcpy(replica(2).open(), &other, sizeof(other));
  replica(2).Publish({});
  ASSERT_EQ(replica(2).dropped(), 1u);
  replica(2).Finish();
  TrainTo(settled + 1, {0, 1});
  for (const int32_t rank : {0, 1}) replica(rank).Finish();
  Await([&] { return replica(2).IsFlushed(); }, "all have finished");
  ASSERT_FALSE(replica(2).IsSettled());
  Merged merged;
  EXPECT_EQ(Merge(2, replica(2).executed(), &merged), 1);
  EXPECT_GT(merged.version, settled);
}

// Models: until a majority knows of it, a later leader may have a mean that its model is in.
TEST_F(SettlementTest, TheMeanIsTakenOnceAMajorityKnows) {
  Open(5, 100, {}, {.group_size = 5, .sync_every = 1000});
  TrainTo(2, {0, 1, 2, 3, 4});
  GiveUp({0, 1, 3, 4});
  Cut({{0, 1}, {0, 3}, {0, 4}});
  EXPECT_FALSE(replica(0).GoOnWithout());
  Ticks(1);
  Publish(2);
  replica(2).Finish();
  for (int i = 0; i < 5; ++i, Tick()) EXPECT_FALSE(replica(2).IsFlushed());
  EXPECT_GT(replica(2).log().settled(), 0u);
  Cut({});
  End(2);
}

// Models: a model that has come since does not keep the others from the mean.
TEST_F(SettlementTest, WhatComesLaterHoldsUpNoRank) {
  Open(3, 100, {}, {.group_size = 3, .sync_every = 1000});
  TrainTo(2, {0, 1, 2});
  Cut({{0, 2}, {2, 0}});
  GiveUp({0, 1});
  GoOnWithout({0});
  const uint64_t last = replica(0).executed();
  Publish(2);
  Cut({});
  Ticks(3);
  EXPECT_TRUE(replica(1).IsSettled());
  GoOnWithout({1});
  Merged merged;
  EXPECT_EQ(Merge(1, last, &merged), 1);
  EXPECT_EQ(merged.version, last);
  End(2);
}

// Models: it has published one since, of which it had not heard that no version will have it.
TEST_F(SettlementTest, WhatWasPublishedSinceIsInNoMean) {
  Open(3, 100, {}, {.group_size = 3, .sync_every = 1000});
  TrainTo(2, {0, 1, 2});
  Cut({{0, 2}});
  GiveUp({0, 1});
  GoOnWithout({0, 1});
  const uint64_t last = replica(0).executed();
  const int64_t other = 1000;
  std::memcpy(replica(2).open(), &other, sizeof(other));
  replica(2).Publish({});
  Ticks(1);
  Cut({});
  Ticks(3);
  End(2);
  EXPECT_EQ(replica(2).executed(), last);
  Merged merged;
  EXPECT_EQ(Merge(2, last, &merged), 1);
  EXPECT_FALSE(merged.kept);
}

}  // namespace
}  // namespace covey
