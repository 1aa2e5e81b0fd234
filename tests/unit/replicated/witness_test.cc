// The witness has one vote in each term, and forgets nothing that it has accepted; replicas ask it
// where they are one half, and of two halves that one goes on which reaches it.
//
// Method: Witnesses of several replicas at one record, kept here; replicas as in replica_test.cc,
// whose links are cut.
#include "core/replicated/witness.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/replicated/replica_job.h"

namespace covey {
namespace {

using Question = Witness::Question;

struct Keeper {
  uint64_t state = 0;
  Bytes record;

  WitnessAnswer Answer(const WitnessRequest& request) {
    const bool is_taken = !request.record.empty() && request.state == state;
    if (is_taken) record = request.record;
    state += is_taken ? 1 : 0;
    return {.number = request.number, .state = state, .is_taken = is_taken, .record = record};
  }
  bool Ask(Witness* witness, Question question, uint64_t term, const Progress& mine) {
    witness->Ask(question, term, mine);
    while (const std::optional<WitnessRequest> request = witness->TakeRequest(1))
      EXPECT_TRUE(witness->OnAnswer(Answer(*request)));
    return witness->HalfOf(question, term, mine) == Half::kWithThem;
  }
};

constexpr Progress kBegin{.accepted_term = 1};

TEST(WitnessRecordTest, BytesGiveItBack) {
  const WitnessRecord record{
      .term = 7,
      .voted_for = 3,
      .accepted = {.executed = 9, .accepted_term = 6, .attempt = 2, .has_entry = true}};
  WitnessRecord read;
  ASSERT_TRUE(WitnessRecord::Decode(record.Encode(), &read));
  EXPECT_EQ(read.Encode(), record.Encode());
  EXPECT_EQ(read.last(), 10u);
  Bytes shorter = record.Encode();
  shorter.pop_back();
  EXPECT_FALSE(WitnessRecord::Decode(shorter, &read));
  ASSERT_TRUE(WitnessRecord::Decode({}, &read));
  EXPECT_EQ(read.term, 1u);
  EXPECT_EQ(read.last(), 0u);
}

TEST(WitnessTest, VotesOnceInATerm) {
  Keeper keeper;
  Witness first(true, 0), second(true, 1);
  EXPECT_TRUE(keeper.Ask(&second, Question::kLook, 2, kBegin));
  EXPECT_EQ(keeper.state, 0u) << "a look changes nothing";
  EXPECT_TRUE(keeper.Ask(&second, Question::kVote, 2, kBegin));
  EXPECT_FALSE(keeper.Ask(&first, Question::kVote, 2, kBegin));
  EXPECT_FALSE(keeper.Ask(&first, Question::kLook, 2, kBegin));
  EXPECT_TRUE(keeper.Ask(&first, Question::kVote, 3, kBegin));
  EXPECT_FALSE(keeper.Ask(&second, Question::kAccept, 2, kBegin));
}

TEST(WitnessTest, AcceptedVersionsAreNotForgotten) {
  Keeper keeper;
  Witness first(true, 0), second(true, 1);
  const Progress more{.executed = 4, .accepted_term = 1, .attempt = 5, .has_entry = true};
  EXPECT_TRUE(keeper.Ask(&first, Question::kAccept, 1, more));
  EXPECT_FALSE(keeper.Ask(&second, Question::kLook, 2, kBegin));
  EXPECT_FALSE(keeper.Ask(&second, Question::kVote, 2, kBegin));
  Progress other = more;
  other.attempt = 4;
  EXPECT_FALSE(keeper.Ask(&second, Question::kVote, 3, other));
  EXPECT_TRUE(keeper.Ask(&second, Question::kVote, 4, more));
}

// It has read the record before another one changes it.
TEST(WitnessTest, AQuestionIsPutAgainToARecordThatHasChanged) {
  Keeper keeper;
  Witness first(true, 0), second(true, 1);
  EXPECT_TRUE(keeper.Ask(&second, Question::kLook, 2, kBegin));
  const Progress more{.executed = 4, .accepted_term = 1, .attempt = 5, .has_entry = true};
  EXPECT_TRUE(keeper.Ask(&first, Question::kAccept, 1, more));
  second.Ask(Question::kVote, 2, more);
  const std::optional<WitnessRequest> old = second.TakeRequest(1);
  ASSERT_TRUE(old.has_value());
  EXPECT_FALSE(second.TakeRequest(1).has_value()) << "one at a time";
  EXPECT_FALSE(keeper.Answer(*old).is_taken);
  EXPECT_TRUE(second.OnAnswer(
      {.number = old->number, .state = keeper.state, .is_taken = false, .record = keeper.record}));
  EXPECT_TRUE(keeper.Ask(&second, Question::kVote, 2, more));
}

// An answer that comes after another question was put.
TEST(WitnessTest, AnAnswerCountsForItsQuestionAlone) {
  Keeper keeper;
  Witness first(true, 0);
  EXPECT_TRUE(keeper.Ask(&first, Question::kAccept, 1, kBegin));
  const Progress next{.accepted_term = 1, .attempt = 1, .has_entry = true};
  const Progress later{.accepted_term = 1, .attempt = 2, .has_entry = true};
  first.Ask(Question::kAccept, 1, next);
  const std::optional<WitnessRequest> request = first.TakeRequest(1);
  ASSERT_TRUE(request.has_value());
  first.Ask(Question::kAccept, 1, later);
  EXPECT_TRUE(first.OnAnswer(keeper.Answer(*request)));
  EXPECT_EQ(first.HalfOf(Question::kAccept, 1, later), Half::kMissing);
  EXPECT_EQ(first.HalfOf(Question::kAccept, 1, next), Half::kMissing);
  EXPECT_TRUE(keeper.Ask(&first, Question::kAccept, 1, later));
}

class WitnessedTest : public ReplicaTest {
 protected:
  void OpenWith(int32_t size) {
    has_witness_ = true;
    Open(size);
  }
  // No message between the ranks below `from` and the others.
  void Split(int32_t from) {
    Links links;
    const auto size = static_cast<int32_t>(replicas_.size());
    for (int32_t a = 0; a < size; ++a)
      for (int32_t b = 0; b < size; ++b)
        if ((a < from) != (b < from)) links.insert({a, b});
    Cut(links);
  }
};

TEST_F(WitnessedTest, IsNotAskedWhileAllAreWell) {
  for (const int32_t size : {2, 4, 6}) {
    Close();
    OpenWith(size);
    std::vector<int32_t> all;
    for (int32_t rank = 0; rank < size; ++rank) all.push_back(rank);
    TrainTo(40, all);
    EXPECT_EQ(witness_requests_, 0u) << size;
    EXPECT_EQ(replica(0).term(), 1u);
  }
}

// Nor is more than a half.
TEST_F(WitnessedTest, IsNotAskedByAMajority) {
  OpenWith(4);
  TrainTo(2, {0, 1, 2, 3});
  Stop(0);
  TrainTo(20, {1, 2, 3});
  EXPECT_EQ(witness_state_, 0u);
}

TEST_F(WitnessedTest, OfTwoTheOneGoesOnThatReachesIt) {
  for (const int32_t cut_off : {0, 1}) {
    Close();
    OpenWith(2);
    TrainTo(3, {0, 1});
    reaches_no_witness_ = {cut_off};
    Split(1);
    TrainTo(12, {1 - cut_off});
    Publish(cut_off);
    Ticks(100);
    EXPECT_LE(replica(cut_off).executed(), 4u);
    EXPECT_TRUE(replica(1 - cut_off).leads());
    EXPECT_FALSE(replica(cut_off).MissingForQuorum(now_).empty());
    EXPECT_TRUE(replica(1 - cut_off).MissingForQuorum(now_).empty());
    reaches_no_witness_.clear();
    Cut({});
    TrainTo(20, {0, 1});
    // All are well again: the witness is asked no more.
    Ticks(20);
    const uint64_t requests = witness_requests_;
    TrainTo(40, {0, 1});
    EXPECT_EQ(witness_requests_, requests);
  }
}

TEST_F(WitnessedTest, OfTwoHostsWithTwoRanksTheSecondMayGoOn) {
  OpenWith(4);
  TrainTo(3, {0, 1, 2, 3});
  Split(2);
  reaches_no_witness_ = {0, 1};
  TrainTo(12, {2, 3});
  Publish(0);
  Ticks(50);
  EXPECT_LE(replica(0).executed(), 4u);
}

// Both reach it, and one of them goes on.
TEST_F(WitnessedTest, OfTwoThatReachItOneGoesOn) {
  OpenWith(2);
  TrainTo(3, {0, 1});
  Split(1);
  for (int turn = 0; turn < 300; ++turn) {
    for (const int32_t rank : {0, 1})
      if (replica(rank).executed() >= replica(rank).step()) Publish(rank);
    Tick();
  }
  const uint64_t more = std::max(replica(0).executed(), replica(1).executed());
  EXPECT_GT(more, 20u);
  EXPECT_LE(std::min(replica(0).executed(), replica(1).executed()), 4u);
}

TEST_F(WitnessedTest, WithoutAnAnswerNoHalfGoesOn) {
  OpenWith(2);
  TrainTo(3, {0, 1});
  Split(1);
  reaches_no_witness_ = {0, 1};
  Publish(0);
  Publish(1);
  Ticks(200);
  EXPECT_LE(std::max(replica(0).executed(), replica(1).executed()), 3u);
  for (const int32_t rank : {0, 1}) EXPECT_FALSE(replica(rank).MissingForQuorum(now_).empty());
}

// It goes on alone by the witness, and dies; the other goes on from its own last version.
TEST_F(WitnessedTest, VersionsThatTheDeadAloneHadAreTold) {
  OpenWith(2);
  TrainTo(3, {0, 1});
  Split(1);
  reaches_no_witness_ = {1};
  TrainTo(12, {0});
  const uint64_t last = replica(0).executed(), own = replica(1).executed();
  Stop(0);
  reaches_no_witness_.clear();
  Ticks(100);
  EXPECT_EQ(replica(1).executed(), own) << "a silent rank may come back";
  EXPECT_EQ(replica(1).lost_versions().last, 0u);
  replica(1).OnLoss(0);
  TrainTo(own + 3, {1});
  EXPECT_EQ(replica(1).lost_versions().first, own + 1);
  EXPECT_EQ(replica(1).lost_versions().last, last);
  EXPECT_EQ(replica(1).lost_versions().gone, (std::vector<int32_t>{0}));
}

// The dead one's last messages tell of versions, and nothing else of them comes.
TEST_F(WitnessedTest, WhoIsToldOfVersionsByTheDeadGoesOnWithoutThem) {
  OpenWith(2);
  TrainTo(3, {0, 1});
  Split(1);
  reaches_no_witness_ = {1};
  TrainTo(12, {0});
  Stop(0);
  reaches_no_witness_.clear();
  Cut({});
  Ticks(5);
  const uint64_t own = replica(1).executed();
  EXPECT_LT(own, 12u);
  replica(1).OnLoss(0);
  TrainTo(own + 3, {1});
  EXPECT_EQ(replica(1).Lacking().last, 0u);
  EXPECT_EQ(replica(1).lost_versions().first, own + 1);
  EXPECT_GE(replica(1).lost_versions().last, 12u);
}

// Several that live, each of which was told.
TEST_F(WitnessedTest, ThoseThatWereToldOfVersionsByTheDeadGoOnWithoutThem) {
  OpenWith(4);
  TrainTo(3, {0, 1, 2, 3});
  Split(2);
  reaches_no_witness_ = {2, 3};
  TrainTo(12, {0, 1});
  Stop(0);
  Stop(1);
  reaches_no_witness_.clear();
  Cut({});
  Ticks(5);
  const uint64_t own = std::max(replica(2).executed(), replica(3).executed());
  EXPECT_LT(own, 12u);
  for (const int32_t rank : {2, 3})
    for (const int32_t dead : {0, 1}) replica(rank).OnLoss(dead);
  TrainTo(own + 3, {2, 3});
  for (const int32_t rank : {2, 3}) EXPECT_EQ(replica(rank).Lacking().last, 0u);
  const Replica& leader = replica(replica(2).leads() ? 2 : 3);
  EXPECT_EQ(leader.lost_versions().first, own + 1);
  EXPECT_GE(leader.lost_versions().last, 12u);
  EXPECT_EQ(leader.lost_versions().gone, (std::vector<int32_t>{0, 1}));
}

// No rank makes a version again that a rank which has left has read.
TEST_F(WitnessedTest, VersionsOfThoseThatHaveLeftAreLacking) {
  OpenWith(2);
  TrainTo(3, {0, 1});
  Split(1);
  reaches_no_witness_ = {1};
  TrainTo(12, {0});
  Leave(0, 5 * kTick);
  Ticks(80);
  ASSERT_TRUE(replica(0).has_departed());
  Cut({});
  links_[{0, 1}].erase(links_[{0, 1}].begin(), links_[{0, 1}].end() - 1);
  reaches_no_witness_.clear();
  Publish(1);
  Ticks(100);
  EXPECT_EQ(replica(1).executed(), 3u);
  EXPECT_EQ(replica(1).Lacking().last, 12u);
  EXPECT_EQ(replica(1).lost_versions().last, 0u);
}

TEST_F(WitnessedTest, NothingIsLostWithARankThatHadNoMore) {
  OpenWith(2);
  TrainTo(3, {0, 1});
  Ticks(5);
  Stop(0);
  replica(1).OnLoss(0);
  TrainTo(6, {1});
  EXPECT_EQ(replica(1).lost_versions().last, 0u);
}

}  // namespace
}  // namespace covey
