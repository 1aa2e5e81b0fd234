// Goal: dpsgd averages models with neighbors each step, in the round of the topology that counts
// from where it begins, before the update or after it; before another method begins, all average.
// Method: plans and texts; what is refused, by its message.
#include <gtest/gtest.h>

#include "core/method/method.h"

namespace covey {
namespace {

MethodPlan PlanOf(std::string_view text, int64_t version) {
  MethodChoice choice;
  const Status status = ParseMethod(text, &choice);
  EXPECT_TRUE(status.ok()) << status.message();
  return choice.Plan({.size = 8, .rank = GroupIndex{3}}, version);
}

std::string ErrorOf(std::string_view text) {
  MethodChoice choice;
  return ParseMethod(text, &choice).message();
}

TEST(DpsgdTest, EveryStepIsARoundOfItsTopology) {
  for (int64_t version = 0; version < 20; ++version) {
    const MethodPlan plan = PlanOf("dpsgd:topology=one_peer", version);
    EXPECT_EQ(plan.payload, Payload::kModel);
    EXPECT_EQ(plan.admission, Admission::kNeighbors);
    EXPECT_EQ(plan.neighbors.topology, TopologyKind::kOnePeer);
    EXPECT_EQ(plan.neighbors.round, static_cast<uint64_t>(version));
    EXPECT_FALSE(plan.neighbors.adapts_first);
  }
  EXPECT_EQ(PlanOf("dpsgd", 0).neighbors.topology, TopologyKind::kExponential);
  EXPECT_TRUE(PlanOf("dpsgd:order=atc", 0).neighbors.adapts_first);
  EXPECT_EQ(PlanOf("dpsgd:topology=matching,seed=7", 0).neighbors.seed, 7u);
}

TEST(DpsgdTest, RoundsCountFromWhereItBeginsAndItEndsWithAnAverageOfAll) {
  const std::string text = "allreduce:then=dpsgd@10:warmup_steps=2,then=allreduce@20";
  EXPECT_EQ(PlanOf(text, 11).payload, Payload::kGradients);
  EXPECT_EQ(PlanOf(text, 12).neighbors.round, 0u);
  EXPECT_EQ(PlanOf(text, 18).neighbors.round, 6u);
  EXPECT_EQ(PlanOf(text, 19), MethodPlan{.payload = Payload::kModel});
}

TEST(DpsgdTest, ItsWarmUpWaitsForMaxWaitIfThereIsOne) {
  EXPECT_EQ(PlanOf("dpsgd:warmup_steps=2", 0), MethodPlan{.payload = Payload::kGradients});
  const MethodPlan limited = PlanOf("dpsgd:max_wait=3s,warmup_steps=2", 0);
  EXPECT_EQ(limited.payload, Payload::kGradients);
  EXPECT_EQ(limited.admission, Admission::kRounds);
  EXPECT_EQ(limited.rounds.max_wait, Duration::Of(3 * kSecond));
}

TEST(DpsgdTest, EachTopologyIsReadAndWritten) {
  for (int kind = 0; kind < kNumTopologyKinds - 1; ++kind) {
    const std::string name = NameOf(static_cast<TopologyKind>(kind));
    MethodChoice choice;
    ASSERT_TRUE(ParseMethod("dpsgd:topology=" + name, &choice).ok());
    EXPECT_EQ(choice.Text(), "dpsgd:topology=" + name + ",order=cwa,seed=1");
  }
  EXPECT_EQ(PlanOf("dpsgd:topology=one-peer", 0).neighbors.topology, TopologyKind::kOnePeer);
}

TEST(DpsgdTest, OneRoundOfSoManyIsBetweenHosts) {
  EXPECT_EQ(PlanOf("dpsgd", 0).neighbors.cross_every, 1);
  EXPECT_EQ(PlanOf("dpsgd:cross_every=4", 0).neighbors.cross_every, 4);
  MethodChoice choice;
  ASSERT_TRUE(ParseMethod("dpsgd:cross_every=4", &choice).ok());
  EXPECT_EQ(choice.Text(), "dpsgd:topology=exponential,order=cwa,seed=1,cross_every=4");
  ASSERT_TRUE(ParseMethod("dpsgd:cross_every=1", &choice).ok());
  EXPECT_EQ(choice.Text(), "dpsgd:topology=exponential,order=cwa,seed=1");
}

TEST(DpsgdTest, WhatIsWrongIsRefused) {
  EXPECT_EQ(ErrorOf("dpsgd:cross_every=0"),
            "cross_every is \"0\", which is not a number of rounds from 1 to 1000");
  EXPECT_EQ(ErrorOf("dpsgd:order=act"), "order is \"act\", which is not cwa or atc");
  EXPECT_EQ(ErrorOf("dpsgd:topology=rings"),
            "topology: there is no topology 'rings', but ring, exponential, one_peer, bipartite, "
            "full, matching (did you mean ring?)");
  EXPECT_NE(ErrorOf("dpsgd:topology=matrix"), "");
}

}  // namespace
}  // namespace covey
