// Goal: a rank looks at the model of a rank on another host by one question, whose answer moves
// nothing; one that does not answer costs one message, and a model of long ago is not shown.
// Method: ranks on hosts of their own, whose messages the test delivers, and a clock of its own.
#include "core/gossip/far_looks.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/gossip/far_ranks.h"

namespace covey {
namespace {

constexpr Time kNow = 100 * kSecond;

// The float64 behind all float32.
double NumberOf(const FarLooks::Model& model) {
  double number = 0;
  std::memcpy(&number, model.bytes.data() + kFloats * sizeof(float), sizeof(number));
  return number;
}

TEST(FarLooksTest, AQuestionAndItsAnswerMoveNothing) {
  Ranks ranks = Begun({8, 2});
  ranks.far(1).Tell(7);
  FarLooks::Model model;
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  ranks.DeliverAll();
  ASSERT_TRUE(ranks.far(0).Look(1, kNow, &model));
  EXPECT_EQ(NumberOf(model), 2);
  EXPECT_EQ(model.steps, 7u);
  EXPECT_EQ(model.epoch, 0u);
  EXPECT_EQ(ranks.number(0), 8);
  EXPECT_EQ(ranks.number(1), 2);
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model)) << "a look has its answer once";
}

TEST(FarLooksTest, ARankThatDoesNotAnswerIsAskedOnce) {
  Ranks ranks = Begun({8, 2});
  FarLooks::Model model;
  ranks.TakeBytes();
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(ranks.far(0).Look(1, kNow + i * 10 * kSecond, &model));
    ranks.Send(0);
  }
  EXPECT_EQ(ranks.TakeBytes(), FarMessage::kHeadBytes);
}

TEST(FarLooksTest, AModelOfLongAgoIsNotShown) {
  Ranks ranks = Begun({8, 2});
  FarLooks::Model model;
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  ranks.DeliverAll();
  ranks.Learn(1, 100);
  const Time later = kNow + FarLooks::kKept + 1;
  EXPECT_FALSE(ranks.far(0).Look(1, later, &model));
  ranks.DeliverAll();
  ASSERT_TRUE(ranks.far(0).Look(1, later + FarLooks::kKept, &model));
  EXPECT_EQ(NumberOf(model), 102);
}

TEST(FarLooksTest, ARankThatHasFinishedShowsItsModelAndOneThatHasLeftNone) {
  Ranks ranks = Begun({8, 2});
  FarLooks::Model model;
  ranks.far(1).Finish();
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  ranks.DeliverAll();
  ASSERT_TRUE(ranks.far(0).Look(1, kNow, &model));
  EXPECT_EQ(NumberOf(model), 2);
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  ranks.Send(0);
  ranks.far(1).Leave();
  ranks.DeliverAll();
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  EXPECT_EQ(ranks.far(0).StateOf(1), FarState::kLeft);
  EXPECT_EQ(ranks.far(0).counters().malformed, 0u);
}

TEST(FarLooksTest, AModelThatWasNotAskedForOrIsNoneIsRefused) {
  Ranks ranks = Begun({8, 2});
  FarLooks::Model model;
  ranks.DeliverAll();
  const Bytes empty = FarMessage{.kind = FarMessage::Kind::kModel, .body = {}}.Head();
  ranks.far(0).OnMessage(1, empty);
  EXPECT_EQ(ranks.far(0).counters().malformed, 1u);
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  Bytes shorter = empty;
  shorter.resize(empty.size() + 8);
  ranks.far(0).OnMessage(1, shorter);
  EXPECT_EQ(ranks.far(0).counters().malformed, 2u);
  Bytes question = FarMessage{.kind = FarMessage::Kind::kAsk, .body = {}}.Head();
  question.resize(question.size() + 1);
  ranks.far(0).OnMessage(1, question);
  EXPECT_EQ(ranks.far(0).counters().malformed, 3u);
  ranks.DeliverAll();
  EXPECT_TRUE(ranks.far(0).Look(1, kNow, &model));
}

TEST(FarLooksTest, WhatALostRankHasAnsweredIsGone) {
  Ranks ranks = Begun({8, 2});
  FarLooks::Model model;
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  ranks.DeliverAll();
  ranks.far(0).OnLoss(1);
  EXPECT_FALSE(ranks.far(0).Look(1, kNow, &model));
  EXPECT_TRUE(ranks.far(0).IsLost(1));
}

}  // namespace
}  // namespace covey
