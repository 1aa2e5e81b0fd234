// Goal: eager's settings become the versions that core/partial makes, the same at every step.
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

TEST(EagerTest, ExchangesGradientsInRounds) {
  for (int64_t version : {0, 1, 1000}) {
    const MethodPlan plan = PlanOf("eager:admit=solo,grace=20ms,log=4", version);
    EXPECT_EQ(plan.payload, Payload::kGradients);
    EXPECT_EQ(plan.admission, Admission::kRounds);
    EXPECT_EQ(plan.rounds.admit.Needed(4), 1);
    EXPECT_EQ(plan.rounds.grace, Duration::Of(20 * kMillisecond));
    EXPECT_EQ(plan.rounds.log, 4);
  }
}

TEST(EagerTest, WaitsForHalfOfTheRanksUnlessTold) {
  EXPECT_EQ(PlanOf("eager", 0).rounds.admit, AdmitOf(-500));
  EXPECT_EQ(PlanOf("eager", 0).rounds.grace, Duration::Auto());
  EXPECT_EQ(PlanOf("eager:admit=all", 0).rounds.admit, AdmitRule::All());
  EXPECT_EQ(PlanOf("eager", 0).rounds.max_wait, Duration::Auto());
  EXPECT_EQ(PlanOf("eager:max_wait=2s", 0).rounds.max_wait, Duration::Of(2 * kSecond));
  EXPECT_EQ(PlanOf("eager", 0).rounds.max_staleness, 32);
  EXPECT_EQ(PlanOf("eager:L=3", 0).rounds.max_staleness, 3);
  EXPECT_EQ(PlanOf("eager:admit=majority", 0).rounds.admit, AdmitOf(kAdmitDrawn - 1));
  EXPECT_EQ(PlanOf("eager:admit=first2,seed=7", 0).rounds.admit, AdmitOf(kAdmitDrawn - 2));
  EXPECT_EQ(PlanOf("eager:admit=first2,seed=7", 0).rounds.seed, 7u);
  EXPECT_FALSE(PlanOf("eager", 0).rounds.skips_ahead);
  EXPECT_TRUE(PlanOf("eager:progress=skip", 0).rounds.skips_ahead);
}

TEST(EagerTest, WhoSkipsAheadHasNoGraceUnlessTold) {
  EXPECT_EQ(PlanOf("eager:progress=skip", 0).rounds.grace, Duration::Of(0));
  EXPECT_EQ(PlanOf("eager:progress=skip,grace=5ms", 0).rounds.grace,
            Duration::Of(5 * kMillisecond));
  EXPECT_EQ(PlanOf("eager:progress=lockstep", 0).rounds.grace, Duration::Auto());
}

}  // namespace
}  // namespace covey
