// Goal: allreduce waits for all at every step, for ever unless told how long.
// Method: plans of a few texts.
#include <gtest/gtest.h>

#include "core/method/method.h"

namespace covey {
namespace {

MethodPlan PlanOf(std::string_view text, int64_t version) {
  MethodChoice choice;
  EXPECT_TRUE(ParseMethod(text, &choice).ok()) << text;
  return choice.Plan({.size = 4, .rank = GroupIndex{1}}, version);
}

TEST(AllreduceTest, WithoutMaxWaitNothingIsInRounds) {
  for (const int64_t version : {0, 1, 1000})
    for (const char* text : {"allreduce", "allreduce:max_wait=off"})
      EXPECT_EQ(PlanOf(text, version), MethodPlan{.payload = Payload::kGradients}) << text;
}

TEST(AllreduceTest, WithMaxWaitEveryVersionWaitsForAllSoLong) {
  for (const int64_t version : {0, 1, 1000}) {
    const MethodPlan plan = PlanOf("allreduce:max_wait=2s", version);
    EXPECT_EQ(plan.payload, Payload::kGradients);
    EXPECT_EQ(plan.admission, Admission::kRounds);
    MethodRounds eager = PlanOf("eager:admit=all,grace=0s,max_wait=2s,seed=0", version).rounds;
    eager.grace = {};  // none, as 0s
    EXPECT_EQ(plan.rounds, eager);
  }
}

}  // namespace
}  // namespace covey
