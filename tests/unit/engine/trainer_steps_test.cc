#include "core/engine/trainer_steps.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

void Step(Time now, int64_t exchange, int32_t needed, TrainerSteps* steps) {
  steps->Begin();
  steps->Come(now);
  steps->End({.now = now + 5, .processor = 2 * now, .waited = 3 * now},
             {.number = exchange, .needed = needed});
}

TEST(TrainerStepsTest, StepsAreTimedFromTheEndOfTheFirst) {
  TrainerSteps steps;
  EXPECT_EQ(steps.Json(), R"("steps":0,"first":[],"last":[])");
  Step(10, 1, 2, &steps);
  Step(20, 2, 2, &steps);
  Step(30, 3, 2, &steps);
  EXPECT_EQ(steps.Json(), R"("steps":3,"first":[15,20,30],"last":[35,60,90])");
}

TEST(TrainerStepsTest, WhatIsNoStepIsNotCounted) {
  TrainerSteps steps;
  steps.Come(10);
  steps.End({.now = 20}, {.number = 1, .needed = 2});
  EXPECT_EQ(steps.Json(), R"("steps":0,"first":[],"last":[])");
  EXPECT_TRUE(steps.TakeArrivals(9).empty());
}

TEST(TrainerStepsTest, AnInterruptedStepHasComeWhenItCameFirst) {
  TrainerSteps steps;
  steps.Begin();
  steps.Come(10);
  steps.Begin();
  steps.Come(30);
  steps.End({.now = 40}, {.number = 7, .needed = 3});
  const auto arrivals = steps.TakeArrivals(9);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].exchange.number, 7);
  EXPECT_EQ(arrivals[0].at, 10);
  EXPECT_EQ(arrivals[0].exchange.needed, 3);
}

TEST(TrainerStepsTest, AStepWithoutAnExchangeHasNoArrival) {
  TrainerSteps steps;
  steps.Begin();
  steps.End({.now = 20}, {.number = 1, .needed = 2});
  Step(30, 2, 0, &steps);
  EXPECT_TRUE(steps.TakeArrivals(9).empty());
}

TEST(TrainerStepsTest, ArrivalsAreTakenOnceAndTheLatestAreKept) {
  TrainerSteps steps;
  constexpr auto kMost = static_cast<int64_t>(TrainerSteps::kMostArrivals);
  for (int64_t i = 0; i < kMost + 3; ++i) Step(i + 1, i, 2, &steps);
  const auto taken = steps.TakeArrivals(2);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].exchange.number, 3);
  EXPECT_EQ(taken[1].exchange.number, 4);
  const auto rest = steps.TakeArrivals(1 << 20);
  ASSERT_EQ(rest.size(), TrainerSteps::kMostArrivals - 2);
  EXPECT_EQ(rest.back().exchange.number, kMost + 2);
  EXPECT_TRUE(steps.TakeArrivals(9).empty());
}

}  // namespace
}  // namespace covey
