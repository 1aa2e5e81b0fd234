// A new leader: no replica commits a version again that only departed ranks have. A rank without
// such a version is told, unless another replica has it.
//
// Method: as in replica_test.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

// No replica commits other versions in their place, and finish() does not end.
TEST_F(ReplicaTest, WhatOthersHaveTakenAlongIsLacking) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  Publish(2);
  TrainTo(2 + kSteps, {0, 1});
  Leave(0);
  Leave(1);
  Ticks(80);
  ASSERT_TRUE(replica(0).has_departed() && replica(1).has_departed());
  // All that lies before it is the last message of each.
  for (auto& [pair, link] : links_)
    if (pair.second == 2) link.erase(link.begin(), link.end() - (link.empty() ? 0 : 1));
  GoOn(2);
  replica(2).Finish();
  Ticks(100);
  EXPECT_TRUE(replica(2).leads());
  EXPECT_LE(replica(2).executed(), 3u);
  EXPECT_EQ(replica(2).fired(), 0u);
  EXPECT_FALSE(replica(2).IsFlushed());
  EXPECT_EQ(replica(2).Lacking().first, replica(2).executed() + 1);
  EXPECT_EQ(replica(2).Lacking().last, 2 + kSteps);
  EXPECT_EQ(replica(2).Lacking().gone, (std::vector<int32_t>{0, 1}));
  Leave(2);
  Ticks(20);
  EXPECT_TRUE(replica(2).has_departed());
}

// The leader proposes a version that nobody else hears of, and the others commit another one.
TEST_F(ReplicaTest, WhatItAcceptedIsNotWhatTheyTookAlong) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Propose();
  links_[{0, 1}].clear();
  links_[{0, 2}].clear();
  Stop(0);
  GoOn(1);
  GoOn(2);
  TrainTo(3, {1, 2});
  LeaveBehind(0);
  EXPECT_TRUE(replica(0).leads());
  EXPECT_EQ(replica(0).executed(), 2u);
  EXPECT_EQ(replica(0).Lacking().first, 3u);
  EXPECT_EQ(replica(0).Lacking().last, 3u);
}

TEST_F(ReplicaTest, WhatItAcceptedIsWhatTheyTookAlong) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Propose();
  Stop(0);
  GoOn(1);
  GoOn(2);
  Tick();
  ASSERT_TRUE(replica(2).log().uncommitted().has_value());
  Stop(2);
  GoOn(0);
  TrainTo(3, {0, 1});
  LeaveBehind(2);
  EXPECT_EQ(replica(2).executed(), 3u);
  EXPECT_EQ(replica(2).Lacking().last, 0u);
}

// Two that are both behind: the one that leads knows of it from one that has left, the other from
// the one that leads.
TEST_F(ReplicaTest, WhoFollowsOneThatLacksEntriesIsToldToo) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  Stop(3);
  Stop(4);
  TrainTo(2 + kSteps, {0, 1, 2});
  for (const int32_t rank : {0, 1, 2}) Leave(rank);
  Ticks(80);
  for (auto& [pair, link] : links_) {
    if (pair.second < 3) continue;
    link.erase(link.begin(), link.end() - (link.empty() ? 0 : 1));
    if (pair.second == 4) link.clear();  // it hears of deaths only
  }
  for (const int32_t rank : {0, 1, 2}) replica(4).OnLoss(rank);
  GoOn(3);
  GoOn(4);
  Ticks(100);
  for (const int32_t rank : {3, 4}) {
    EXPECT_EQ(replica(rank).executed(), 2u) << rank;
    EXPECT_EQ(replica(rank).Lacking().last, 2 + kSteps) << rank;
  }
}

// Two replicas are behind, and the follower gets a version after its vote: the leader ends its
// term, and the follower leads.
TEST_F(ReplicaTest, ALeaderMakesWayForWhoHasWhatItLacks) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  Stop(3);
  Stop(4);
  TrainTo(3, {0, 1, 2});
  std::map<int32_t, std::deque<Bytes>> late;  // pieces, by author
  for (const int32_t rank : {0, 1, 2}) {
    for (const Bytes& bytes : std::exchange(links_[{rank, 4}], {})) {
      ReplicaMessage message;
      ASSERT_TRUE(ReplicaMessage::Decode(bytes, &message));
      const bool is_piece = message.kind == ReplicaMessage::Kind::kPiece;
      (is_piece ? late[rank] : links_[{rank, 4}]).push_back(bytes);
    }
  }
  GoOn(4);
  Tick();
  Stop(4);
  for (const int32_t rank : {0, 1, 2}) Leave(rank);
  Ticks(80);
  for (const int32_t rank : {0, 1, 2}) {
    ASSERT_TRUE(replica(rank).has_departed());
    std::deque<Bytes>& link = links_[{rank, 3}];
    link.erase(link.begin(), link.end() - 1);
    links_[{rank, 4}].clear();
    replica(4).OnLoss(rank);
  }
  GoOn(3);
  GoOn(4);
  Ticks(60);
  ASSERT_TRUE(replica(3).leads());
  ASSERT_EQ(replica(4).executed(), 2u);
  ASSERT_EQ(replica(3).Lacking().last, 3u);
  for (auto& [rank, pieces] : late) links_[{rank, 4}].swap(pieces);
  Ticks(200);
  EXPECT_TRUE(replica(4).leads());
  for (const int32_t rank : {3, 4}) {
    EXPECT_EQ(replica(rank).executed(), 3u) << rank;
    EXPECT_EQ(replica(rank).Lacking().last, 0u) << rank;
  }
}

// It has nothing of its own that would keep it from finishing.
TEST_F(ReplicaTest, WhoLacksVersionsHasNotFinished) {
  Open(2);
  TrainTo(2, {0, 1});
  Stop(1);
  TrainTo(2 + kSteps, {0});
  Leave(0);
  Ticks(80);
  links_[{0, 1}].erase(links_[{0, 1}].begin(), links_[{0, 1}].end() - 1);
  GoOn(1);
  replica(1).Finish();
  for (int ticks = 0; ticks < 100; ++ticks) {
    Tick();
    ASSERT_FALSE(replica(1).IsFlushed());
  }
  EXPECT_EQ(replica(1).Lacking().first, 3u);
}

}  // namespace
}  // namespace covey
