// A new leader: no replica commits a version again that only departed ranks have. A rank without
// such a version is told, unless another replica has it.
//
// Method: as in replica_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

class ReplicaElectionTest : public ReplicaTest {
 protected:
  using Kind = ReplicaMessage::Kind;

  static ReplicaMessage Decoded(const Bytes& bytes) {
    ReplicaMessage message;
    EXPECT_TRUE(ReplicaMessage::Decode(bytes, &message));
    return message;
  }
  static Kind KindOf(const Bytes& bytes) { return Decoded(bytes).kind; }
  // The pieces on their way to `rank`, by author.
  std::map<int32_t, std::deque<Bytes>> TakePieces(int32_t rank) {
    std::map<int32_t, std::deque<Bytes>> pieces;
    for (auto& [pair, link] : links_) {
      if (pair.second != rank) continue;
      for (const Bytes& bytes : std::exchange(link, {}))
        (KindOf(bytes) == Kind::kPiece ? pieces[pair.first] : link).push_back(bytes);
    }
    return pieces;
  }
  // `ranks` leave. others[0] receives only their last message, kLeave; each later one of `others`
  // receives no message, and is told of the losses.
  void LeaveTogether(const std::vector<int32_t>& ranks, const std::vector<int32_t>& others) {
    for (const int32_t rank : ranks) Leave(rank);
    Ticks(80);
    for (const int32_t rank : ranks) {
      ASSERT_TRUE(replica(rank).has_departed());
      std::deque<Bytes>& link = links_[{rank, others[0]}];
      link.erase(link.begin(), link.end() - 1);
      for (size_t i = 1; i < others.size(); ++i) {
        links_[{rank, others[i]}].clear();
        replica(others[i]).OnLoss(rank);
      }
    }
  }
  bool HasVoted(int32_t rank, int32_t candidate) {
    const std::deque<Bytes>& link = links_[{rank, candidate}];
    return std::any_of(link.begin(), link.end(),
                       [](const Bytes& it) { return KindOf(it) == Kind::kVoteGranted; });
  }
};

// No replica commits other versions in their place, and finish() does not end.
TEST_F(ReplicaElectionTest, WhatOthersHaveTakenAlongIsLacking) {
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
TEST_F(ReplicaElectionTest, WhatItAcceptedIsNotWhatTheyTookAlong) {
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

TEST_F(ReplicaElectionTest, WhatItAcceptedIsWhatTheyTookAlong) {
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

// A replica accepts a version in term 1. The leader of a later term tells it that it is committed,
// and has accepted in term 1 the version after it.
TEST_F(ReplicaElectionTest, WhatIsLearntAsCommittedWasAcceptedInItsOwnTerm) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Propose();
  ReplicaMessage entry;
  for (const Bytes& bytes : links_[{0, 2}])
    if (KindOf(bytes) == Kind::kAppendEntry) entry = Decoded(bytes);
  ASSERT_EQ(entry.version, 3u);
  GoOn(2);
  Tick();
  ASSERT_TRUE(replica(2).log().uncommitted().has_value());
  const Progress before = replica(2).log().progress();
  entry.term = before.accepted_term + 5;
  entry.executed = 4;
  replica(2).OnMessage(1, entry.Encode(), now_);
  const Progress& after = replica(2).log().progress();
  EXPECT_EQ(after.executed, 3u);
  EXPECT_EQ(after.accepted_term, before.accepted_term);
  const Progress other{
      .executed = 3, .accepted_term = before.accepted_term, .attempt = 1, .has_entry = true};
  EXPECT_FALSE(Progress::IsUpToDate(other, after)) << "it lacks the version after it";
}

// Two that are both behind: the one that leads knows of it from one that has left, the other from
// the one that leads.
TEST_F(ReplicaElectionTest, WhoFollowsOneThatLacksEntriesIsToldToo) {
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
TEST_F(ReplicaElectionTest, ALeaderMakesWayForWhoHasWhatItLacks) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  Stop(3);
  Stop(4);
  TrainTo(3, {0, 1, 2});
  std::map<int32_t, std::deque<Bytes>> late = TakePieces(4);
  GoOn(4);
  Tick();
  Stop(4);
  LeaveTogether({0, 1, 2}, {3, 4});
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

// As before, but the follower has the version when it first hears of the new term.
TEST_F(ReplicaElectionTest, ALeaderMakesWayForWhoHadWhatItLacksBeforeItsTerm) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  Stop(3);
  Stop(4);
  TrainTo(3, {0, 1, 2});
  std::map<int32_t, std::deque<Bytes>> late = TakePieces(4);
  GoOn(4);
  Tick();
  Stop(4);
  LeaveTogether({0, 1, 2}, {3, 4});
  GoOn(3);
  GoOn(4);
  for (int ticks = 0; ticks < 100 && !HasVoted(4, 3); ++ticks) Tick();
  ASSERT_TRUE(HasVoted(4, 3));
  ASSERT_EQ(replica(4).executed(), 2u);
  for (auto& [rank, pieces] : late) links_[{rank, 4}].swap(pieces);
  Ticks(200);
  EXPECT_TRUE(replica(4).leads());
  for (const int32_t rank : {3, 4}) {
    EXPECT_EQ(replica(rank).executed(), 3u) << rank;
    EXPECT_EQ(replica(rank).Lacking().last, 0u) << rank;
  }
}

// It has nothing of its own that would keep it from finishing.
TEST_F(ReplicaElectionTest, WhoLacksVersionsHasNotFinished) {
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
