// Goal: wagma's settings become versions of models, the same at every step; groups are beside the
// root of all ranks unless told; wrong settings are refused with their range.
// Method: plans of a few texts.
#include <gtest/gtest.h>

#include "core/method/method.h"

namespace covey {
namespace {

MethodPlan PlanOf(std::string_view text, int32_t size, int64_t version = 0) {
  MethodChoice choice;
  EXPECT_TRUE(ParseMethod(text, &choice).ok()) << text;
  return choice.Plan({.size = size, .rank = GroupIndex{0}}, version);
}

std::string ErrorOf(std::string_view text) {
  MethodChoice choice;
  return ParseMethod(text, &choice).message();
}

TEST(WagmaTest, ExchangesModelsInRounds) {
  for (const int64_t version : {0, 1, 1000}) {
    const MethodPlan plan = PlanOf("wagma:S=4,tau=5,max_wait=2s,grace=1ms,admit=2", 8, version);
    EXPECT_EQ(plan.payload, Payload::kModel);
    EXPECT_EQ(plan.admission, Admission::kRounds);
    EXPECT_EQ(plan.rounds.group_size, 4);
    EXPECT_EQ(plan.rounds.sync_every, 5);
    EXPECT_EQ(plan.rounds.admit, AdmitOf(2));
    EXPECT_EQ(plan.rounds.grace, Duration::Of(kMillisecond));
    EXPECT_EQ(plan.rounds.max_wait, Duration::Of(2 * kSecond));
  }
  const MethodRounds standard = PlanOf("wagma", 4).rounds;
  EXPECT_EQ(standard.admit, AdmitOf(kAdmitSolo));
  EXPECT_EQ(standard.sync_every, 10);
  EXPECT_EQ(standard.log, 2);
  EXPECT_EQ(standard.grace, Duration::Auto());
  EXPECT_EQ(PlanOf("wagma:grace=0s", 4).rounds.grace, Duration::Of(0));
}

TEST(WagmaTest, GroupsAreBesideTheRootUnlessTold) {
  constexpr int32_t kExpected[][2] = {{1, 1},  {2, 2},   {3, 2},    {4, 2},    {7, 2},
                                      {8, 4},  {12, 4},  {16, 4},   {31, 4},   {32, 8},
                                      {64, 8}, {127, 8}, {128, 16}, {256, 16}, {1024, 32}};
  for (const auto& [size, group_size] : kExpected)
    EXPECT_EQ(PlanOf("wagma", size).rounds.group_size, group_size) << size;
}

TEST(WagmaTest, HostsMakeADifferenceWhenTold) {
  EXPECT_EQ(PlanOf("wagma", 8).rounds.cross_every, 1);
  EXPECT_EQ(PlanOf("wagma:cross_every=4", 8).rounds.cross_every, 4);
  MethodChoice choice;
  ASSERT_TRUE(ParseMethod("wagma:cross_every=4", &choice).ok());
  EXPECT_EQ(choice.Text(),
            "wagma:group_size=auto,sync_every=10,admit=solo,grace=auto,max_wait=auto,log=2,"
            "cross_every=4");
  ASSERT_TRUE(ParseMethod("wagma:cross_every=1", &choice).ok());
  EXPECT_EQ(choice.Text(),
            "wagma:group_size=auto,sync_every=10,admit=solo,grace=auto,max_wait=auto,log=2");
  EXPECT_EQ(ErrorOf("wagma:cross_every=1001"),
            "cross_every is \"1001\", which is not a number of rounds from 1 to 1000");
}

TEST(WagmaTest, TextsAreReadAndWritten) {
  MethodChoice choice;
  ASSERT_TRUE(ParseMethod("wagma", &choice).ok());
  EXPECT_EQ(choice.Text(),
            "wagma:group_size=auto,sync_every=10,admit=solo,grace=auto,max_wait=auto,log=2");
  ASSERT_TRUE(ParseMethod("wagma:S=4,tau=8", &choice).ok());
  EXPECT_EQ(choice.Text(),
            "wagma:group_size=4,sync_every=8,admit=solo,grace=auto,max_wait=auto,log=2");
  ASSERT_TRUE(ParseMethod("wagma:S=4,tau=8,grace=0s", &choice).ok());
  EXPECT_EQ(choice.Text(),
            "wagma:group_size=4,sync_every=8,admit=solo,grace=0s,max_wait=auto,log=2");
}

TEST(WagmaTest, WrongSettingsAreRefusedWithTheirRange) {
  for (const char* size : {"0", "-1", "1.5", "", "all", "1048577"})
    EXPECT_EQ(ErrorOf("wagma:group_size=" + std::string(size)),
              "group_size is \"" + std::string(size) +
                  "\", which is not auto or a number of ranks from 1 to 1048576");
  for (const char* grace : {"-1", "-1ns", "5", "Auto", "", "4000s"})
    EXPECT_EQ(ErrorOf("wagma:grace=" + std::string(grace)),
              "grace is \"" + std::string(grace) +
                  "\", which is not auto or a time such as 20ms from 0s to 3600s");
  EXPECT_EQ(ErrorOf("wagma:tau=0"),
            "sync_every is \"0\", which is not a number of steps from 1 to 1000000000");
}

}  // namespace
}  // namespace covey
