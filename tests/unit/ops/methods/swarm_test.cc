// Goal: swarm averages models in random pairs after some local steps, fixed or random; its learning
// rate is not multiplied by the number of ranks.
// Method: plans and texts; what is refused, by its message.
#include <gtest/gtest.h>

#include "core/method/method.h"

namespace covey {
namespace {

MethodPlan PlanOf(std::string_view text, int32_t size) {
  MethodChoice choice;
  const Status status = ParseMethod(text, &choice);
  EXPECT_TRUE(status.ok()) << status.message();
  return choice.Plan({.size = size, .rank = GroupIndex{0}}, 0);
}

std::string ErrorOf(std::string_view text) {
  MethodChoice choice;
  return ParseMethod(text, &choice).message();
}

TEST(SwarmTest, AnyNumberOfRanksIsMatchedAtRandom) {
  for (int32_t size = 1; size <= 64; ++size) {
    const MethodPlan plan = PlanOf("swarm", size);
    EXPECT_EQ(plan.payload, Payload::kModel);
    EXPECT_EQ(plan.admission, Admission::kPairs);
    EXPECT_EQ(plan.pairs.topology, TopologyKind::kMatching);
    EXPECT_FALSE(plan.pairs.all_begin);
    EXPECT_EQ(plan.pairs.local_steps, 3);
    EXPECT_FALSE(plan.pairs.is_random);
    EXPECT_FALSE(plan.pairs.non_blocking);
  }
}

TEST(SwarmTest, EachPartIsOneArgument) {
  EXPECT_EQ(PlanOf("swarm:H=5", 4).pairs.local_steps, 5);
  EXPECT_TRUE(PlanOf("swarm:local_steps=4,steps=geometric", 4).pairs.is_random);
  EXPECT_TRUE(PlanOf("swarm:exchange=nonblocking", 4).pairs.non_blocking);
  EXPECT_EQ(PlanOf("swarm:topology=full,seed=7", 4).pairs.topology, TopologyKind::kFull);
  EXPECT_EQ(PlanOf("swarm:topology=full,seed=7", 4).pairs.seed, 7u);
  EXPECT_EQ(PlanOf("swarm:cross_every=3", 4).pairs.cross_every, 3);
  MethodChoice choice;
  ASSERT_TRUE(ParseMethod("swarm:steps=geometric", &choice).ok());
  EXPECT_EQ(choice.Text(),
            "swarm:local_steps=3,steps=geometric,exchange=blocking,topology=auto,seed=1,"
            "max_wait=60s");
}

TEST(SwarmTest, WhatIsWrongIsRefused) {
  EXPECT_EQ(ErrorOf("swarm:steps=random"), "steps is \"random\", which is not fixed or geometric");
  EXPECT_EQ(ErrorOf("swarm:exchange=1"), "exchange is \"1\", which is not blocking or nonblocking");
  EXPECT_EQ(ErrorOf("swarm:H=0"),
            "local_steps is \"0\", which is not a number of steps from 1 to 1000000000");
  EXPECT_TRUE(ErrorOf("swarm:local_step=2").ends_with("the nearest is \"local_steps\""));
}

TEST(SwarmTest, ItsLearningRateIsThatOfOneRank) {
  EXPECT_EQ(FindMethod("swarm")->scaling, Scaling::kOne);
}

}  // namespace
}  // namespace covey
