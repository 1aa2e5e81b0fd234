// Goal: two models on different hosts become their mean by a difference that one side adds and the
// other subtracts, whatever happens to both meanwhile; crossing, late, repeated and malformed
// messages, losses and epochs move no sum.
// Method: ranks on hosts of their own, whose messages the test delivers; models of whole numbers.
#include "core/gossip/far_pairs.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/transport/private_atomics.h"
#include "tests/unit/gossip/far_ranks.h"

namespace covey {
namespace {

using Outcome = Gossip::Outcome;

Bytes Head(FarMessage::Kind kind, uint64_t number) {
  return FarMessage{.kind = kind, .number = number, .body = {}}.Head();
}

TEST(FarPairsTest, TwoModelsBecomeTheirMean) {
  Ranks ranks = Begun({8, 2});
  ranks.Average(0, 1);
  for (const int32_t r : {0, 1}) {
    EXPECT_EQ(ranks.number(r), 5);
    EXPECT_EQ(ranks.floats(r), std::vector<float>(kFloats, 5));
  }
  EXPECT_EQ(ranks.far(0).counters().taken, 1u);
  EXPECT_EQ(ranks.far(1).counters().answered, 1u);
}

// The progress of both ranks while the model and the difference are on their way stays, and so do
// the bases of their trainers.
TEST(FarPairsTest, WhatHappensMeanwhileStays) {
  Ranks ranks = Begun({8, 2});
  ranks.SendInput(0, 1);
  ranks.Learn(0, 100);
  ranks.Learn(1, 10);
  EXPECT_TRUE(ranks.Deliver(0, 1));
  EXPECT_EQ(ranks.number(1), 12 + (8.0 - 12) / 2);
  ranks.Send(1);
  ranks.Learn(1, 1000);
  ranks.Learn(0, 100);
  EXPECT_TRUE(ranks.Deliver(1, 0));
  ranks.Learn(0, 0);
  EXPECT_EQ(ranks.number(0), 208 + 2);
  EXPECT_EQ(ranks.number(1), 1010);
  EXPECT_EQ(ranks.Sum(), 8 + 2 + 100 + 10 + 1000 + 100);
}

// Both take the other's would leave each with the other's model.
TEST(FarPairsTest, OfTwoOffersThatCrossOneCounts) {
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  EXPECT_EQ(ranks.far(1).Offer(0), Outcome::kDone);
  ranks.Send(0);
  ranks.Send(1);
  ranks.DeliverAll();
  EXPECT_EQ(ranks.number(0), 5);
  EXPECT_EQ(ranks.number(1), 5);
  EXPECT_EQ(ranks.far(0).counters().taken, 1u);
  EXPECT_EQ(ranks.far(1).counters().declined, 1u);
}

// Offers that cross, and those of ranks that have finished, cost no model.
TEST(FarPairsTest, AModelIsSentOnceItsOfferIsAccepted) {
  Ranks ranks = Begun({8, 2});
  ranks.TakeBytes();
  ranks.Average(0, 1);
  const size_t of_one = ranks.TakeBytes();
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  EXPECT_EQ(ranks.TakeBytes(), FarMessage::kHeadBytes);
  EXPECT_EQ(ranks.far(1).Offer(0), Outcome::kDone);
  ranks.Send(1);
  ranks.DeliverAll();
  EXPECT_LT(ranks.TakeBytes(), of_one + 4 * FarMessage::kHeadBytes);
  ranks.Learn(0, 16);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  ranks.Learn(0, 32);  // The model is that of the time when it is sent.
  ranks.DeliverAll();
  EXPECT_EQ(ranks.number(1), (5 + 16 + 32 + 5) / 2.0);
}

// It has accepted an offer, so another one of its own would leave each with the other's model.
TEST(FarPairsTest, ARankOffersNothingWhereAModelIsToCome) {
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  EXPECT_EQ(ranks.far(1).Offer(0), Outcome::kDone);
  ranks.Send(0);
  EXPECT_TRUE(ranks.Deliver(0, 1));  // before the offer of rank 1 is written
  EXPECT_EQ(ranks.far(1).Offer(0), Outcome::kBusy);
  ranks.DeliverAll();
  EXPECT_EQ(ranks.far(1).counters().offers, 0u);
  EXPECT_EQ(ranks.number(0), 5);
  EXPECT_EQ(ranks.number(1), 5);
  ranks.Average(1, 0);  // and then it may
}

TEST(FarPairsTest, APartnerHasOneOfferAtATime) {
  Ranks ranks = Begun({8, 2, 4});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kBusy);  // due
  ranks.Send(0);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kBusy);  // open
  ranks.Average(0, 2);                               // rank 1 holds up no other
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  EXPECT_EQ(ranks.Sum(), 14);
}

TEST(FarPairsTest, ARankThatHasFinishedTakesNoOffer) {
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  ranks.far(1).Finish();
  EXPECT_EQ(ranks.far(0).Unsettled(), std::vector<int32_t>{1});
  EXPECT_TRUE(ranks.Deliver(0, 1));
  EXPECT_EQ(ranks.number(1), 2);
  ranks.DeliverAll();
  EXPECT_EQ(ranks.number(0), 8);
  EXPECT_EQ(ranks.far(0).counters().declined, 1u);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kAbsent);  // it has been told
  EXPECT_TRUE(ranks.far(0).Unsettled().empty());
  ranks.far(1).TakeBack();
  ranks.DeliverAll();
  ranks.Average(0, 1);
  EXPECT_EQ(ranks.number(0), 5);
}

TEST(FarPairsTest, ARankThatHasFinishedTakesNoModel) {
  Ranks ranks = Begun({8, 2});
  ranks.SendInput(0, 1);
  ranks.far(1).Finish();
  ranks.DeliverAll();
  EXPECT_EQ(ranks.number(1), 2);
  EXPECT_EQ(ranks.number(0), 8);
  EXPECT_EQ(ranks.far(0).counters().declined, 1u);
  EXPECT_TRUE(ranks.far(0).Unsettled().empty());
}

// Its partner has finished, and trains on after all, when the model comes.
TEST(FarPairsTest, ARankWithAnOpenOfferIsNotSettled) {
  Ranks ranks = Begun({8, 2});
  ranks.SendInput(0, 1);
  ranks.far(1).Finish();
  ranks.Send(1);
  ranks.far(0).Finish();
  EXPECT_TRUE(ranks.Deliver(1, 0));
  EXPECT_EQ(ranks.far(0).Unsettled(), std::vector<int32_t>{1});
  ranks.far(1).TakeBack();
  EXPECT_TRUE(ranks.Deliver(0, 1));
  ranks.far(1).Finish();
  ranks.DeliverAll();
  EXPECT_TRUE(ranks.far(0).Unsettled().empty());
  EXPECT_EQ(ranks.number(0), 5);
  EXPECT_EQ(ranks.number(1), 5);
}

// Calls back once, after a word was read.
class Interleaved final : public PrivateAtomics {
 public:
  uint64_t Load(const uint64_t* word) override {
    const uint64_t value = *word;
    if (word == after) std::exchange(call, [] {})();
    return value;
  }

  const uint64_t* after = nullptr;
  std::function<void()> call = [] {};
};

// Two ranks of one host.
TEST(FarPairsTest, WhatIsHandedInIsNotAveragedOnItsHost) {
  const RoundSpan span{DType::kF64, 1};
  PairMemory memory(2, RoundLayout({&span, 1}, 64));
  PrivateBlocks blocks;
  memory.Map({blocks.Add(memory.BlockBytes()), blocks.Add(memory.BlockBytes())});
  Interleaved words;
  Gossip one(0, &memory, &words, &BestKernels(), {}, Gossip::End::kElsewhere);
  Gossip other(1, &memory, &words, &BestKernels(), {}, Gossip::End::kElsewhere);
  double models[] = {8, 2};
  const void* first[] = {&models[0]};
  const void* second[] = {&models[1]};
  one.Begin(first);
  other.Begin(second);
  FarAccess access(&other);
  access.HandIn();
  void* span_of_one[] = {&models[0]};
  EXPECT_EQ(one.Exchange(1, span_of_one), Outcome::kAbsent);
  access.TakeBack();
  EXPECT_EQ(one.Exchange(1, span_of_one), Outcome::kDone);
  EXPECT_EQ(models[0], 5);
  // An exchange that has found the other to be training when that hands its model in.
  words.after = memory.MemberAt(1);
  words.call = [&] { access.HandIn(); };
  EXPECT_EQ(one.Exchange(1, span_of_one), Outcome::kBusy);
}

TEST(FarPairsTest, AnOfferOfAnotherEpochIsDeclined) {
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  ranks.far(1).GoOn();
  EXPECT_TRUE(ranks.Deliver(0, 1));
  ranks.DeliverAll();
  EXPECT_EQ(ranks.number(1), 2);
  EXPECT_EQ(ranks.number(0), 8);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kAbsent);
  ranks.far(0).GoOn();
  ranks.DeliverAll();
  ranks.Average(0, 1);
  EXPECT_EQ(ranks.number(0), 5);
  // It has been accepted in this one.
  ranks.Learn(0, 4);
  ranks.SendInput(0, 1);
  ranks.far(1).GoOn();
  ranks.DeliverAll();
  EXPECT_EQ(ranks.number(1), 5);
  EXPECT_EQ(ranks.number(0), 9);
}

TEST(FarPairsTest, ALostPartnerIsWaitedForNoMore) {
  Ranks ranks = Begun({8, 2, 4});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  ranks.far(0).Finish();
  EXPECT_EQ(ranks.far(0).Unsettled(), (std::vector<int32_t>{1, 2}));
  ranks.far(0).OnLoss(1);
  EXPECT_EQ(ranks.far(0).Unsettled(), std::vector<int32_t>{2});
  EXPECT_EQ(ranks.far(0).counters().lost, 1u);
  ranks.far(0).TakeBack();
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kAbsent);
  EXPECT_EQ(ranks.number(0), 8);
}

TEST(FarPairsTest, ARankThatHasLeftIsAbsent) {
  Ranks ranks = Begun({8, 2, 4});
  ranks.SendInput(0, 1);
  EXPECT_TRUE(ranks.Deliver(0, 1));
  EXPECT_EQ(ranks.far(0).Offer(2), Outcome::kDone);
  ranks.Send(0);
  ranks.far(0).Leave();
  ranks.DeliverAll();  // with answers, which move nothing any more
  EXPECT_EQ(ranks.number(0), 8);
  EXPECT_EQ(ranks.number(2), 4);
  ranks.far(2).Leave();
  ranks.DeliverAll();
  EXPECT_EQ(ranks.far(1).Offer(0), Outcome::kAbsent);
  EXPECT_TRUE(ranks.far(1).HaveAllLeft());
  EXPECT_FALSE(ranks.far(0).HaveAllLeft());
}

TEST(FarPairsTest, WhatIsMalformedOrComesAgainMovesNothing) {
  Ranks ranks = Begun({8, 2});
  ranks.Average(0, 1);
  const Bytes answer = ranks.last();
  FarMessage read;
  ASSERT_TRUE(FarMessage::Decode(answer, &read));
  ASSERT_EQ(read.kind, FarMessage::Kind::kTaken);
  ranks.far(0).OnMessage(1, answer);  // again
  EXPECT_EQ(ranks.far(0).counters().malformed, 1u);
  EXPECT_EQ(ranks.number(0), 5);
  // Answers to an offer that is open: of another number, of no model sent, too short.
  ranks.Learn(0, 8);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.far(0).TakeMessages();
  ranks.far(0).OnMessage(1, answer);
  Bytes other = Head(FarMessage::Kind::kTaken, 2);
  other.insert(other.end(), answer.begin() + FarMessage::kHeadBytes, answer.end() - 8);
  ranks.far(0).OnMessage(1, other);
  EXPECT_EQ(ranks.far(0).counters().malformed, 3u);
  const Bytes accepted = Head(FarMessage::Kind::kAccepted, 2);
  ranks.far(0).OnMessage(1, accepted);
  ranks.far(0).OnMessage(1, accepted);  // again
  EXPECT_EQ(ranks.far(0).counters().malformed, 4u);
  ranks.far(0).OnMessage(1, other);
  EXPECT_EQ(ranks.far(0).counters().malformed, 5u);
  EXPECT_EQ(ranks.number(0), 13);
  // Offers with a body; models that are too long, too short, and of no offer.
  Bytes offer = Head(FarMessage::Kind::kOffer, 2);
  offer.resize(offer.size() + 8);
  ranks.far(1).OnMessage(0, offer);
  EXPECT_EQ(ranks.far(1).counters().malformed, 1u);
  for (const size_t length : {answer.size() + 8, answer.size() - 8}) {
    ranks.far(1).OnMessage(0, Head(FarMessage::Kind::kOffer, length));
    Bytes input = Head(FarMessage::Kind::kInput, length);
    input.resize(length);
    ranks.far(1).OnMessage(0, input);
  }
  ranks.far(1).OnMessage(0, Head(FarMessage::Kind::kInput, 0));
  ranks.far(1).OnMessage(0, Bytes(3));
  EXPECT_EQ(ranks.far(1).counters().malformed, 5u);
  EXPECT_EQ(ranks.number(1), 5);
}

}  // namespace
}  // namespace covey
