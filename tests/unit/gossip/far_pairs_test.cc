// Goal: two models on different hosts become their mean by a difference that one side adds and the
// other subtracts, whatever happens to both meanwhile; crossing, late, repeated and malformed
// messages, losses and epochs move no sum; codes carry the same difference to both.
// Method: ranks on hosts of their own, whose messages the test delivers; models of whole numbers.
#include "core/gossip/far_pairs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/replicated/private_atomics.h"

namespace covey {
namespace {

using Outcome = Gossip::Outcome;
constexpr size_t kFloats = 2000;  // more than a chunk

class Ranks {
 public:
  explicit Ranks(int32_t size, const PairCodec& codec = {}) {
    for (int32_t r = 0; r < size; ++r) {
      ranks_.push_back(std::make_unique<One>(r, size, codec));
      Set(r, 0, 0);
    }
    links_.resize(static_cast<size_t>(size * size));
  }

  // Its model before it begins: all numbers, and what is added to the i-th for each i.
  void Set(int32_t r, double value, double slope) {
    for (size_t i = 0; i < kFloats; ++i)
      At(r).floats[i] = static_cast<float>(value + slope * static_cast<double>(i));
    At(r).number = value;
  }
  void Begin() {
    for (int32_t r = 0; r < size(); ++r) {
      const void* spans[] = {At(r).floats.data(), &At(r).number};
      At(r).gossip.Begin(spans);
      At(r).far.Begin();
    }
    DeliverAll();
  }
  // One step of this rank.
  void Learn(int32_t r, double by) {
    At(r).number += by;
    for (float& one : At(r).floats) one += static_cast<float>(by);
    void* spans[] = {At(r).floats.data(), &At(r).number};
    At(r).gossip.Update(spans);
  }
  FarPairs& far(int32_t r) { return At(r).far; }
  double number(int32_t r) { return Look(r).second; }
  std::vector<float> floats(int32_t r) { return Look(r).first; }
  double Sum() {
    double sum = 0;
    for (int32_t r = 0; r < size(); ++r) sum += number(r);
    return sum;
  }

  // Its messages are on their way.
  void Send(int32_t r) {
    for (EncodedMessage& message : At(r).far.TakeMessages()) {
      bytes_ += message.bytes.size();
      LinkOf(r, message.to).push_back(std::move(message.bytes));
    }
  }
  // The first message on its way; false: there is none.
  bool Deliver(int32_t from, int32_t to) {
    std::deque<Bytes>& link = LinkOf(from, to);
    if (link.empty()) return false;
    last_ = std::move(link.front());
    link.pop_front();
    At(to).far.OnMessage(from, last_);
    return true;
  }
  void DeliverAll() {
    for (bool any = true; any;) {
      any = false;
      for (int32_t from = 0; from < size(); ++from) {
        Send(from);
        for (int32_t to = 0; to < size(); ++to) any |= Deliver(from, to);
      }
    }
  }
  // Both have averaged, or not.
  void Average(int32_t r, int32_t partner) {
    EXPECT_EQ(far(r).Offer(partner), Outcome::kDone);
    DeliverAll();
  }
  const Bytes& last() const { return last_; }
  size_t TakeBytes() { return std::exchange(bytes_, 0); }

 private:
  struct One {
    One(int32_t r, int32_t size, const PairCodec& codec)
        : layout(std::vector<RoundSpan>{{DType::kF32, kFloats}, {DType::kF64, 1}}, 1 << 12),
          memory(1, layout),
          gossip(0, Mapped(), &words, &BestKernels(), codec, Gossip::End::kElsewhere),
          far(r, size, &gossip, &layout, &BestKernels(), codec) {}
    PairMemory* Mapped() {
      memory.Map({blocks.Add(memory.BlockBytes())});
      return &memory;
    }

    RoundLayout layout;
    PairMemory memory;
    PrivateBlocks blocks;
    PrivateAtomics words;
    Gossip gossip;
    FarPairs far;
    std::vector<float> floats = std::vector<float>(kFloats);
    double number = 0;
  };

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  One& At(int32_t r) { return *ranks_[static_cast<size_t>(r)]; }
  std::deque<Bytes>& LinkOf(int32_t from, int32_t to) {
    return links_[static_cast<size_t>(from * size() + to)];
  }
  std::pair<std::vector<float>, double> Look(int32_t r) {
    std::pair<std::vector<float>, double> model{std::vector<float>(kFloats), 0};
    void* spans[] = {model.first.data(), &model.second};
    EXPECT_TRUE(At(r).gossip.Peek(0, spans));
    return model;
  }

  std::vector<std::unique_ptr<One>> ranks_;
  std::vector<std::deque<Bytes>> links_;  // [from * size + to]
  Bytes last_;
  size_t bytes_ = 0;
};

Ranks Begun(std::vector<double> models, const PairCodec& codec = {}) {
  Ranks ranks(static_cast<int32_t>(models.size()), codec);
  for (size_t r = 0; r < models.size(); ++r) ranks.Set(static_cast<int32_t>(r), models[r], 0);
  ranks.Begin();
  return ranks;
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

// What both learn while the offer and its answer are on their way stays, and base and progress of
// their trainers with it.
TEST(FarPairsTest, WhatHappensMeanwhileStays) {
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
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

// Until its answer has come a rank does not settle: the difference would move a model that it has
// given away.
TEST(FarPairsTest, ARankWithAnOpenOfferIsNotSettled) {
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  EXPECT_TRUE(ranks.Deliver(0, 1));
  ranks.far(0).Finish();
  ranks.far(1).Finish();
  ranks.Send(1);
  EXPECT_EQ(ranks.far(0).Unsettled(), std::vector<int32_t>{1});
  EXPECT_TRUE(ranks.Deliver(1, 0));
  EXPECT_TRUE(ranks.Deliver(1, 0));
  EXPECT_TRUE(ranks.far(0).Unsettled().empty());
  EXPECT_EQ(ranks.number(0), 5);
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
  Ranks ranks = Begun({8, 2});
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.Send(0);
  EXPECT_TRUE(ranks.Deliver(0, 1));
  ranks.far(0).Leave();
  ranks.DeliverAll();  // with an answer, which moves nothing any more
  EXPECT_EQ(ranks.number(0), 8);
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
  // Answers to an offer that is open: of another number, too short, too long.
  ranks.Learn(0, 8);
  EXPECT_EQ(ranks.far(0).Offer(1), Outcome::kDone);
  ranks.far(0).TakeMessages();
  ranks.far(0).OnMessage(1, answer);
  Bytes other = FarMessage{.kind = FarMessage::Kind::kTaken, .number = 2, .body = {}}.Head();
  other.insert(other.end(), answer.begin() + FarMessage::kHeadBytes, answer.end() - 8);
  ranks.far(0).OnMessage(1, other);
  EXPECT_EQ(ranks.far(0).counters().malformed, 3u);
  EXPECT_EQ(ranks.number(0), 13);
  // Offers.
  Bytes offer = FarMessage{.kind = FarMessage::Kind::kOffer, .number = 3, .body = {}}.Head();
  offer.resize(answer.size() + 8);
  ranks.far(1).OnMessage(0, offer);
  offer.resize(answer.size() - 8);
  ranks.far(1).OnMessage(0, offer);
  ranks.far(1).OnMessage(0, Bytes(3));
  EXPECT_EQ(ranks.far(1).counters().malformed, 3u);
  EXPECT_EQ(ranks.number(1), 5);
}

// ---- Codecs -------------------------------------------------------------------------------------

PairCodec CodecOf(const std::string& text) {
  PairCodec chosen;
  CodecText read;
  EXPECT_TRUE(ReadCodecText(text, CodecUse::kPairs, &read).ok()) << text;
  chosen.codec = FindReferenceCodec(read.name);
  chosen.values = read.values;
  if (chosen.codec == nullptr) {
    EXPECT_TRUE(ParseCodec(read.text, &chosen.alone).ok()) << text;
  }
  return chosen;
}

class FarCodecTest : public testing::TestWithParam<const char*> {};

TEST_P(FarCodecTest, TheSumStaysAndModelsComeNearer) {
  Ranks ranks(2, CodecOf(GetParam()));
  ranks.Set(0, 8, 0.001);
  ranks.Set(1, 2, 0.002);
  ranks.Begin();
  const std::vector<float> before[] = {ranks.floats(0), ranks.floats(1)};
  for (int i = 0; i < 12; ++i) ranks.Average(i % 2, 1 - i % 2);
  const std::vector<float> after[] = {ranks.floats(0), ranks.floats(1)};
  for (size_t i = 0; i < kFloats; ++i) {
    EXPECT_NEAR(after[0][i] + after[1][i], before[0][i] + before[1][i], 1e-4);
    // They began 6 apart; the coarsest codec has a step of about 0.6 there.
    ASSERT_LT(std::abs(after[0][i] - after[1][i]), 1.5) << i;
  }
  EXPECT_EQ(ranks.number(0), 5);
  EXPECT_EQ(ranks.far(0).counters().malformed + ranks.far(1).counters().malformed, 0u);
}

TEST_P(FarCodecTest, EqualModelsStayEqual) {
  Ranks ranks(2, CodecOf(GetParam()));
  for (const int32_t r : {0, 1}) ranks.Set(r, 3.3, 0.001);
  ranks.Begin();
  const std::vector<float> before = ranks.floats(0);
  for (int i = 0; i < 6; ++i) ranks.Average(i % 2, 1 - i % 2);
  EXPECT_EQ(ranks.floats(0), before);
  EXPECT_EQ(ranks.floats(1), before);
}

TEST_P(FarCodecTest, BytesAreThoseOfTheCodec) {
  Ranks ranks(2, CodecOf(GetParam()));
  ranks.Set(0, 8, 0.001);
  ranks.Set(1, 2, 0.002);
  ranks.Begin();
  ranks.TakeBytes();
  for (int i = 0; i < 8; ++i) ranks.Average(0, 1);
  ranks.TakeBytes();
  ranks.Average(0, 1);
  // Not more than two bytes an element, both ways.
  EXPECT_LT(ranks.TakeBytes(), 2 * (2.2 * kFloats + 100));
}

// A number that a code has no form for goes whole; what cannot be decoded goes whole next time.
TEST_P(FarCodecTest, WhatHasNoCodeGoesWhole) {
  Ranks ranks(2, CodecOf(GetParam()));
  ranks.Set(0, 3e38, 0);
  ranks.Set(1, 1e38, 0);
  ranks.Begin();
  for (int i = 0; i < 3; ++i) ranks.Average(0, 1);
  for (const int32_t r : {0, 1})
    for (const float one : ranks.floats(r)) ASSERT_NEAR(one / 1e38f, 2, 0.1);
  // Far apart at once.
  ranks.Learn(0, 1e30);
  const double before = static_cast<double>(ranks.floats(0)[0]) + ranks.floats(1)[0];
  for (int i = 0; i < 3; ++i) ranks.Average(1, 0);
  EXPECT_NEAR((static_cast<double>(ranks.floats(0)[0]) + ranks.floats(1)[0]) / before, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, FarCodecTest,
                         testing::Values("bf16", "int8", "qsgd", "lattice@8", "lattice@4",
                                         "lattice@16", "bf16@random"));

}  // namespace
}  // namespace covey
