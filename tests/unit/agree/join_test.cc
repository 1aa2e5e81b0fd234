// A loss while all have joined: whoever has heard of that first may leave before the others hear.
#include "core/agree/join.h"

#include <gtest/gtest.h>

#include "core/agree/negotiator.h"

namespace covey {
namespace {

class JoinTest : public testing::Test {
 protected:
  JoinTest() {
    world_.members = {Rank{0}, Rank{1}, Rank{2}};
    world_.my_index = GroupIndex{1};
    request_.kind = Kind::kJoin;
    request_.group = &world_;
    join_.Submit(&request_);
  }

  Group world_;
  Request request_;
  Negotiator negotiator_{{.self = Rank{1}}, nullptr};
  Join join_{Rank{1}};
  const Status lost_ = Status::Aborted("rank 2 has left", Rank{2});
};

TEST_F(JoinTest, WhatIsUnderWayWhenAnotherOneLeavesStillCounts) {
  join_.Progress(negotiator_, 0);  // says JOIN
  join_.OnLoss(lost_, 0);
  join_.Progress(negotiator_, kMillisecond);
  ASSERT_TRUE(join_.ended().empty());
  join_.OnAllJoined({.type = MessageType::kAllJoined, .peer = 2});
  ASSERT_EQ(join_.ended().size(), 1u);
  EXPECT_TRUE(join_.ended()[0].status.ok());
  join_.Progress(negotiator_, kSecond);
  EXPECT_EQ(join_.ended().size(), 1u);
  join_.Submit(&request_);  // a next one cannot end well
  ASSERT_EQ(join_.ended().size(), 2u);
  EXPECT_EQ(join_.ended()[1].status.code(), StatusCode::kAborted);
}

TEST_F(JoinTest, ThenItEndsWithTheLoss) {
  join_.Progress(negotiator_, 0);
  join_.OnLoss(lost_, 0);
  join_.Progress(negotiator_, kSecond);
  ASSERT_EQ(join_.ended().size(), 1u);
  EXPECT_EQ(join_.ended()[0].status.code(), StatusCode::kAborted);
  EXPECT_EQ(join_.ended()[0].status.peer(), Rank{2});
}

TEST_F(JoinTest, WhoHasNotSaidItYetWaitsForNothing) {
  join_.OnLoss(lost_, 0);
  ASSERT_EQ(join_.ended().size(), 1u);
  EXPECT_EQ(join_.ended()[0].status.code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace covey
