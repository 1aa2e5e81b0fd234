// Goal: local averages models each H steps, and gradients before that while it warms up.
// Method: plans of the first versions, written as one letter each.
#include <gtest/gtest.h>

#include "core/method/method.h"

namespace covey {
namespace {

// The payloads of versions 0, 1, ...: "-" none, "g" gradients, "m" model.
std::string Payloads(std::string_view text, int64_t versions) {
  MethodChoice choice;
  const Status status = ParseMethod(text, &choice);
  if (!status.ok()) return status.message();
  std::string letters;
  for (int64_t v = 0; v < versions; ++v)
    letters += "-gm"[static_cast<int>(choice.Plan({.size = 3, .rank = GroupIndex{1}}, v).payload)];
  return letters;
}

TEST(LocalTest, AveragesModelsEachHSteps) {
  EXPECT_EQ(Payloads("local:local_steps=1", 4), "mmmm");
  EXPECT_EQ(Payloads("local:local_steps=3", 8), "--m--m--");
  EXPECT_EQ(Payloads("local:H=3", 8), "--m--m--");
  EXPECT_EQ(Payloads("local", 17), "-------m-------m-");
}

TEST(LocalTest, AveragesGradientsWhileItWarmsUp) {
  EXPECT_EQ(Payloads("local:local_steps=3,warmup_steps=2", 8), "gg--m--m");
  EXPECT_EQ(Payloads("local:warmup_steps=4,local_steps=1", 6), "ggggmm");
}

MethodPlan PlanOf(std::string_view text, int32_t size, int64_t version) {
  MethodChoice choice;
  EXPECT_TRUE(ParseMethod(text, &choice).ok()) << text;
  return choice.Plan({.size = size, .rank = GroupIndex{0}}, version);
}

TEST(LocalTest, WithMaxWaitEveryVersionIsOfAllModels) {
  for (const int32_t size : {1, 2, 7, 64})
    for (const int64_t version : {0, 1, 2, 1000}) {
      const MethodPlan plan = PlanOf("local:H=3,max_wait=300ms", size, version);
      EXPECT_EQ(plan.payload, Payload::kModel);
      EXPECT_EQ(plan.admission, Admission::kRounds);
      EXPECT_EQ(plan.rounds.admit, AdmitRule::All());
      EXPECT_EQ(plan.rounds.max_wait, Duration::Of(300 * kMillisecond));
      EXPECT_EQ(plan.rounds.group_size, size);
      EXPECT_EQ(plan.rounds.sync_every, 1);
      EXPECT_EQ(plan.rounds.local_steps, 3);
    }
}

TEST(LocalTest, WithoutMaxWaitNothingIsInRounds) {
  for (const int64_t version : {0, 2, 7}) {
    EXPECT_EQ(PlanOf("local:H=3,max_wait=off", 4, version), PlanOf("local:H=3", 4, version));
    EXPECT_EQ(PlanOf("local:H=3", 4, version).admission, Admission::kAll);
    EXPECT_EQ(PlanOf("local:H=3", 4, version).rounds, MethodRounds{});
  }
}

TEST(LocalTest, TheWarmUpWaitsForAllForAsLong) {
  const std::string_view text = "local:H=3,max_wait=1s,warmup_steps=2";
  EXPECT_EQ(Payloads(text, 5), "ggmmm");
  EXPECT_EQ(PlanOf(text, 4, 1).rounds.max_wait, Duration::Of(kSecond));
  EXPECT_EQ(PlanOf(text, 4, 1).rounds.admit, AdmitRule::All());
  EXPECT_EQ(PlanOf(text, 4, 1).rounds.warmup, 1);
  EXPECT_EQ(PlanOf(text, 4, 2).admission, Admission::kRounds);
  EXPECT_EQ(PlanOf(text, 4, 2).rounds.warmup, 0);
  EXPECT_EQ(PlanOf("local:H=3,warmup_steps=2", 4, 1), MethodPlan{.payload = Payload::kGradients});
}

}  // namespace
}  // namespace covey
