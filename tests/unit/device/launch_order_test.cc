// Goal: any two ranks launch what both take part in in one order, nobody waits for what not all
// have begun, and a turn is given once.
// Method: two or three orders by hand, as their exchanges' members would call them. Random ones:
// tests/sim/communicators_test.
#include "core/device/launch_order.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace covey {
namespace {

// Exchanges are told apart by their addresses.
const char a = 'a', b = 'b', c = 'c';

TEST(LaunchOrderTest, OneAloneIsNextOnceItsTurnIsKnown) {
  LaunchOrder order(Rank{3});
  EXPECT_FALSE(order.IsNext(&a));
  const uint64_t turn = order.Propose(&a);
  EXPECT_NE(turn, 0u);
  EXPECT_FALSE(order.IsNext(&a));
  order.Settle(&a, turn);
  EXPECT_TRUE(order.IsNext(&a));
  order.Remove(&a);
  EXPECT_FALSE(order.IsNext(&a));
}

TEST(LaunchOrderTest, RanksThatSawThemInTurnAndNotAgree) {
  LaunchOrder first(Rank{0}), second(Rank{1});
  const uint64_t a0 = first.Propose(&a), b0 = first.Propose(&b);
  const uint64_t b1 = second.Propose(&b), a1 = second.Propose(&a);
  const uint64_t a_turn = std::max(a0, a1), b_turn = std::max(b0, b1);
  EXPECT_NE(a_turn, b_turn);
  for (LaunchOrder* order : {&first, &second}) {
    order->Settle(&a, a_turn);
    order->Settle(&b, b_turn);
    const bool a_first = a_turn < b_turn;
    EXPECT_TRUE(order->IsNext(a_first ? &a : &b));
    EXPECT_FALSE(order->IsNext(a_first ? &b : &a));
    order->Remove(a_first ? &a : &b);
    EXPECT_TRUE(order->IsNext(a_first ? &b : &a));
  }
}

TEST(LaunchOrderTest, WhatMayStillComeBeforeIsWaitedFor) {
  LaunchOrder order(Rank{0});
  const uint64_t a0 = order.Propose(&a);
  const uint64_t b0 = order.Propose(&b);
  order.Settle(&b, b0);
  EXPECT_FALSE(order.IsNext(&b)) << "a may settle at its proposal, which is smaller";
  order.Settle(&a, a0 + (uint64_t{9} << 16));
  EXPECT_TRUE(order.IsNext(&b));
  EXPECT_FALSE(order.IsNext(&a));
  order.Remove(&b);
  EXPECT_TRUE(order.IsNext(&a));
}

TEST(LaunchOrderTest, ProposalsComeAfterEveryTurnThatIsKnown) {
  LaunchOrder order(Rank{5});
  order.Settle(&a, order.Propose(&a) + (uint64_t{100} << 16));
  const uint64_t later = order.Propose(&c);
  EXPECT_GT(later, uint64_t{100} << 16);
  EXPECT_TRUE(order.IsNext(&a));
}

TEST(LaunchOrderTest, WhatNeverWillBeLaunchedHoldsNobodyUp) {
  LaunchOrder order(Rank{0});
  order.Propose(&a);
  order.Settle(&b, order.Propose(&b));
  EXPECT_FALSE(order.IsNext(&b));
  order.Remove(&a);
  EXPECT_TRUE(order.IsNext(&b));
}

}  // namespace
}  // namespace covey
