// A replica that leaves stays until those that it hears of have what it knows, and no longer; a
// silent leader is replaced; finish() ends with what all know.
//
// Method: replicas with links between them that hold what the test holds back; a message is read
// when the test says so. Whole numbers, so that a sum says what went into it.
#include "core/replicated/replica.h"

#include <gtest/gtest.h>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

// Longer than any election_timeout: it reads one message of each now and then.
TEST_F(ReplicaTest, WhoLeavesStaysUntilWhoIsSlowHasAll) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(2 + kSteps, {0, 1});
  GoOn(2);
  Leave(0);
  Leave(1);
  for (int ticks = 0; ticks < 400 && !replica(0).has_departed(); ++ticks) {
    GoOn(2);
    if (ticks % 8 != 0) Stop(2);  // less than election_timeout
    Tick(1);
    EXPECT_TRUE(!replica(0).has_departed() || replica(2).executed() == 2 + kSteps);
  }
  EXPECT_TRUE(replica(0).has_departed());
  GoOn(2);
  Ticks(10);
  EXPECT_TRUE(replica(1).has_departed());
  EXPECT_EQ(replica(2).executed(), 2 + kSteps);
  EXPECT_EQ(replica(2).Lacking().last, 0u);
  TrainTo(3 + kSteps, {2});  // alone
}

TEST_F(ReplicaTest, WhoIsSilentIsNotWaitedFor) {
  Open(3);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(1 + kSteps, {0, 1});
  Leave(0);
  Leave(1);
  Ticks(80);
  EXPECT_TRUE(replica(0).has_departed() && replica(1).has_departed());
}

TEST_F(ReplicaTest, SomeTimeItLeavesInAnyCase) {
  Open(3);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(1 + kSteps, {0, 1});
  Leave(0, 5 * kTick);
  Ticks(6);
  EXPECT_TRUE(replica(0).has_departed());
}

// The second of two ranks names a silent leader as missing for as long as it is silent, after any
// last message of that leader.
TEST_F(ReplicaTest, ASilentLeaderIsMissing) {
  for (int reads = 0; reads < 12; ++reads) {
    SCOPED_TRACE("after " + std::to_string(reads) + " messages");
    Close();
    Open(2);
    TrainTo(3, {0, 1});
    Publish(0);
    Publish(1);
    for (int i = 0; i < reads; ++i) Tick(1);
    Stop(0);
    Cut({{0, 1}});
    Ticks(40);
    for (int i = 0; i < 100; ++i) {
      Tick();
      EXPECT_EQ(replica(1).MissingForQuorum(now_).size(), 1u) << "tick " << i;
    }
  }
}

// One that was stopped itself has not listened: what it has not read is not silence.
TEST_F(ReplicaTest, WhoHasNotListenedWaitsAnew) {
  Open(3);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(1 + kSteps, {0, 1});
  Ticks(20);
  Stop(0);
  GoOn(2);
  now_ += 20 * kGrace;
  Leave(0);
  GoOn(0);
  Tick(0);
  EXPECT_FALSE(replica(0).has_departed());
}

// The link between the leader and one rank is cut: another leader reaches all, for good.
TEST_F(ReplicaTest, WhoHearsOthersAndNeverTheLeaderGetsAnother) {
  for (const Links& cut : {Links{{0, 2}}, Links{{0, 2}, {2, 0}}}) {
    Close();
    Open(3);
    TrainTo(2, {0, 1, 2});
    Cut(cut);
    const Time began = now_;
    for (uint64_t version = 3; now_ < began + 300 * kGrace; ++version) TrainTo(version, {0, 1, 2});
    EXPECT_TRUE(replica(1).leads());
    const uint64_t term = replica(1).term();
    TrainTo(replica(1).executed() + 20, {0, 1, 2});
    EXPECT_EQ(replica(1).term(), term);
  }
}

// A rank that is behind cannot lead, and does not end the term of the one that tells it all.
TEST_F(ReplicaTest, WhoKnowsMoreThanTheLeaderStays) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(2 + kSteps, {0, 1});
  Stop(0);
  Stop(1);
  std::map<std::pair<int32_t, int32_t>, std::deque<Bytes>> late;
  for (auto& [pair, link] : links_) {
    if (pair.second != 2 || link.empty()) continue;
    late[pair].assign(link.begin() + 1, link.end());
    link.resize(1);
  }
  GoOn(2);
  Ticks(40);
  EXPECT_EQ(replica(2).term(), 1u);
  for (auto& [pair, link] : late) links_[pair].swap(link);
  GoOn(0);
  GoOn(1);
  Leave(0);
  Leave(1);
  Ticks(100);
  EXPECT_EQ(replica(2).executed(), 2 + kSteps);
  EXPECT_EQ(replica(2).Lacking().last, 0u);
  EXPECT_TRUE(replica(0).has_departed() && replica(1).has_departed());
}

// A loss comes on a way of its own: whoever was counted last may be known to be dead before the
// version is known.
// A leader may fire before it has answered its own first heartbeat.
TEST_F(ReplicaTest, ALeaderHasAPartInItsFirstProposal) {
  Open(2, 100, {.count = 1});
  const ReplicaMessage state{.kind = ReplicaMessage::Kind::kAppendResponse, .term = 1};
  replica(0).OnMessage(1, state.Encode(), now_);
  Publish(1);
  Stop(0);
  Tick();
  GoOn(0);
  Ticks(20);
  for (const int32_t rank : {0, 1}) EXPECT_EQ(replica(rank).executed(), 1u) << rank;
}

TEST_F(ReplicaTest, ALossEndsNoFinishBeforeTheLeaderKnowsOfIt) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  replica(0).Finish();
  replica(1).Finish();
  Ticks(5);
  Publish(2);
  replica(2).Finish();
  Stop(1);
  Ticks(5);
  ASSERT_EQ(replica(2).executed(), 3u);
  ASSERT_EQ(replica(1).executed(), 2u);
  Stop(2);
  replica(0).OnLoss(2);
  replica(1).OnLoss(2);
  EXPECT_FALSE(replica(1).IsFlushed());
  GoOn(1);
  Ticks(5);
  EXPECT_EQ(replica(1).executed(), 3u);
  EXPECT_TRUE(replica(1).IsFlushed() && replica(0).IsFlushed());
}

// What it needs nobody has applied yet, nor has to, as far as versions go: the last is one further.
TEST_F(ReplicaTest, WhoNeedsASnapshotIsSeenByThoseThatWait) {
  Open(3, 4);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(2 + 4 * kSteps, {0, 1});
  for (const int32_t rank : {0, 1}) {
    EXPECT_EQ(replica(rank).Read(replica(rank).executed() - 1, {}, nullptr), Found::kYes);
    replica(rank).Finish();
  }
  Ticks(5);
  EXPECT_FALSE(replica(0).IsAnyInNeed() || replica(1).IsAnyInNeed());
  GoOn(2);
  Ticks(5);
  Replica::Snapshot snapshot;
  ASSERT_EQ(replica(2).Read(3, {}, nullptr), Found::kGone);
  const size_t longest = replica(2).LongestMessageBytes();
  ASSERT_FALSE(replica(2).RequestSnapshot(&snapshot));
  EXPECT_EQ(replica(2).LongestMessageBytes(),
            longest + 64 * layout_->length_bytes() + (size_t{4} << 30));
  Ticks(5);
  const uint64_t last = replica(0).executed();
  ASSERT_EQ(replica(2).executed(), last);
  for (const int32_t rank : {0, 1}) {
    EXPECT_FALSE(replica(rank).IsAsked(last - 1, now_));
    EXPECT_TRUE(replica(rank).IsAnyInNeed());
    EXPECT_EQ(replica(rank).Read(last, {}, nullptr), Found::kYes);
  }
  Ticks(5);
  for (const int32_t rank : {0, 1}) replica(rank).Give(last, Bytes(8));
  Ticks(5);
  ASSERT_TRUE(replica(2).RequestSnapshot(&snapshot));
  EXPECT_EQ(snapshot.version, last);
  EXPECT_EQ(replica(2).LongestMessageBytes(), longest);
  Ticks(5);
  EXPECT_FALSE(replica(0).IsAnyInNeed() || replica(1).IsAnyInNeed());
}

// Its next step: one that was waited for in vain is overdue, and would stay late.
TEST_F(ReplicaTest, AfterASnapshotARankIsLateUnlessItIsOverdue) {
  for (const bool is_waited_for : {true, false}) {
    Open(3, 4, is_waited_for ? AdmissionRule{} : AdmissionRule{.count = 1});
    TrainTo(2, {0, 1, 2});
    TrainTo(2 + 4 * kSteps, {0, 1});
    Ticks(5);
    Replica::Snapshot snapshot;
    ASSERT_EQ(replica(2).Read(3, {}, nullptr), Found::kGone);
    ASSERT_FALSE(replica(2).RequestSnapshot(&snapshot));
    const uint64_t last = replica(0).executed();
    for (const int32_t rank : {0, 1}) ASSERT_EQ(replica(rank).Read(last, {}, nullptr), Found::kYes);
    Ticks(5);
    for (const int32_t rank : {0, 1}) replica(rank).Give(last, Bytes(8));
    Ticks(5);
    ASSERT_TRUE(replica(2).RequestSnapshot(&snapshot));
    ASSERT_LT(replica(2).step(), last);
    EXPECT_EQ(replica(2).next_step(), is_waited_for ? last + 1 : replica(2).step() + 1);
    Close();
  }
}

// With nobody else left it goes on alone, if it has all.
TEST_F(ReplicaTest, WhoHasAllGoesOn) {
  Open(3);
  TrainTo(kSteps, {0, 1, 2});
  Leave(0);
  Leave(1);
  Ticks(80);
  ASSERT_TRUE(replica(0).has_departed() && replica(1).has_departed());
  TrainTo(2 * kSteps, {2});
  replica(2).Finish();
  Ticks(20);
  EXPECT_TRUE(replica(2).IsFlushed());
}

// The leader has finished and left while a third rank is stopped: its clock of max_wait is gone.
TEST_F(ReplicaTest, AFinishEndsWithoutALeader) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  replica(0).Finish();
  Ticks(5);
  EXPECT_TRUE(replica(0).HasGivenUp());
  Leave(0);
  Ticks(40);
  ASSERT_TRUE(replica(0).has_departed());
  replica(1).OnLoss(0);
  replica(1).Finish();
  Tick();
  EXPECT_FALSE(replica(1).HasGivenUp());  // max_wait is two ticks
  Ticks(10);
  EXPECT_TRUE(replica(1).HasGivenUp());
  EXPECT_EQ(replica(1).Unfinished(), std::vector<int32_t>{2});
  // Another try waits anew.
  GoOn(2);
  TrainTo(3, {1, 2});
  EXPECT_EQ(replica(1).executed(), replica(2).executed());
}

// replicated-W29.
TEST_F(ReplicaTest, WhatNoVersionHasIsTakenBackAfterTheLast) {
  Open(3);
  for (const int32_t rank : {0, 1, 2}) replica(rank).EndWith(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(3, {0, 1});
  Publish(0);
  Publish(0);
  GoOn(2);
  Publish(2);
  const std::byte* content = nullptr;
  EXPECT_FALSE(replica(2).Withdraw(&content));  // it may be in version 3
  Ticks(20);
  for (const int32_t rank : {0, 1, 2}) EXPECT_EQ(replica(rank).executed(), 3u) << rank;
  for (const auto& [rank, steps] : {std::pair(0, 2), std::pair(1, 0), std::pair(2, 1)}) {
    ASSERT_TRUE(replica(rank).Withdraw(&content));
    int64_t sum = 0;
    if (content != nullptr) std::memcpy(&sum, content, sizeof(sum));
    EXPECT_EQ(sum, steps) << rank;
    ASSERT_TRUE(replica(rank).Withdraw(&content));
    EXPECT_EQ(content, nullptr) << rank;
  }
  // Nothing is left for others.
  for (const int32_t rank : {0, 1, 2}) Leave(rank);
  Ticks(20);
  for (const int32_t rank : {0, 1, 2}) EXPECT_TRUE(replica(rank).has_departed()) << rank;
}

// Ranks that go on from the last version: one gives the state there when it is asked, and keeps it;
// the other gives none.
TEST_F(ReplicaTest, AfterTheLastVersionAStateServesEachRankThatComes) {
  constexpr uint64_t kLast = 6;
  Open(4, 1);
  for (const int32_t rank : {0, 1, 2, 3}) replica(rank).EndWith(kLast);
  TrainTo(1, {0, 1, 2, 3});
  Stop(2);
  Stop(3);
  TrainTo(kLast, {0, 1});
  const std::byte* content = nullptr;
  for (const int32_t rank : {0, 1})
    for (uint64_t version = 1; version <= kLast; ++version)
      replica(rank).Read(version, {}, nullptr);
  ASSERT_TRUE(replica(1).Withdraw(&content));
  Replica::Snapshot snapshot;
  for (const int32_t rank : {2, 3}) {
    GoOn(rank);
    Ticks(4);
    ASSERT_EQ(replica(rank).Read(2, {}, nullptr), Found::kGone);
    ASSERT_FALSE(replica(rank).RequestSnapshot(&snapshot));
    Ticks(4);
    if (rank == 2) {
      ASSERT_TRUE(replica(0).IsAsked(kLast, now_));
      replica(0).Give(kLast, Bytes(8));
      ASSERT_TRUE(replica(0).Withdraw(&content));
    }
    Ticks(4);
    ASSERT_TRUE(replica(rank).RequestSnapshot(&snapshot)) << rank;
    EXPECT_EQ(snapshot.version, kLast);
    EXPECT_EQ(snapshot.from, 0);
    ASSERT_TRUE(replica(rank).Withdraw(&content));  // it goes on, too
  }
}

// The state comes from another rank than what the leader has to say.
TEST_F(ReplicaTest, AfterTheLastVersionAStateWaitsForItsLog) {
  constexpr uint64_t kLast = 6;
  Open(3, 1);
  for (const int32_t rank : {0, 1, 2}) replica(rank).EndWith(kLast);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(kLast, {0, 1});
  for (const int32_t rank : {0, 1})
    for (uint64_t version = 1; version <= kLast; ++version)
      replica(rank).Read(version, {}, nullptr);
  const std::byte* content = nullptr;
  ASSERT_TRUE(replica(0).Withdraw(&content));  // the leader leaves no state
  Ticks(2);
  Cut({{0, 2}});
  GoOn(2);
  Replica::Snapshot snapshot;
  ASSERT_FALSE(replica(2).RequestSnapshot(&snapshot));
  Ticks(3);
  ASSERT_TRUE(replica(1).IsAsked(kLast, now_));
  replica(1).Give(kLast, Bytes(8));
  Ticks(3);
  EXPECT_FALSE(replica(2).RequestSnapshot(&snapshot));
  Cut({});
  Ticks(3);
  ASSERT_TRUE(replica(2).RequestSnapshot(&snapshot));
  EXPECT_EQ(snapshot.version, kLast);
  EXPECT_TRUE(replica(2).Withdraw(&content));
}

}  // namespace
}  // namespace covey
