// Goal: local averages models each H steps, and gradients before that while it warms up.
// Method: plans of the first versions, written as one letter each.
#include <gtest/gtest.h>

#include "core/plan/method.h"

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

}  // namespace
}  // namespace covey
