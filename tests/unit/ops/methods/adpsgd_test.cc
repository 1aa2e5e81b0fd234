// Goal: adpsgd averages models in pairs, of a topology that fits the number of ranks.
// Method: plans for many sizes; what is refused, by its message.
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

TEST(AdpsgdTest, AnyNumberOfRanksHasATopology) {
  for (int32_t size = 1; size <= 64; ++size) {
    const MethodPlan plan = PlanOf("adpsgd", size);
    EXPECT_EQ(plan.payload, Payload::kModel);
    EXPECT_EQ(plan.admission, Admission::kPairs);
    EXPECT_TRUE(CheckPairs({.kind = plan.pairs.topology, .size = size}).ok()) << size;
  }
  EXPECT_EQ(PlanOf("adpsgd", 8).pairs.topology, TopologyKind::kBipartite);
  EXPECT_FALSE(PlanOf("adpsgd", 8).pairs.all_begin);
  EXPECT_EQ(PlanOf("adpsgd", 7).pairs.topology, TopologyKind::kMatching);
  EXPECT_TRUE(PlanOf("adpsgd", 7).pairs.all_begin);
}

TEST(AdpsgdTest, TheTopologyIsOneArgument) {
  EXPECT_EQ(PlanOf("adpsgd:topology=ring", 4).pairs.topology, TopologyKind::kRing);
  EXPECT_EQ(PlanOf("adpsgd:topology=full", 4).pairs.topology, TopologyKind::kFull);
  EXPECT_EQ(PlanOf("adpsgd:topology=matching,seed=7", 4).pairs.seed, 7u);
  EXPECT_EQ(PlanOf("adpsgd:cross_every=3", 4).pairs.cross_every, 3);
  MethodChoice choice;
  ASSERT_TRUE(ParseMethod("adpsgd:topology=ring", &choice).ok());
  EXPECT_EQ(choice.Text(), "adpsgd:topology=ring,seed=1,max_wait=60s");
  EXPECT_EQ(ParseMethod("adpsgd:topology=exponential", &choice).message(),
            "topology is \"exponential\", which is not auto, bipartite, ring, full or matching");
}

}  // namespace
}  // namespace covey
