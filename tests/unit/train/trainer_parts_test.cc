// Where parts of a training end: what is exchanged; and a rank of pairs holds up no other.
#include "core/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/train/trainer_world.h"

namespace covey {
namespace {

TEST(TrainerPartsTest, PairsEndWithTheMeanOfAllAndTheNextPartBeginsThere) {
  World world("adpsgd:then=allreduce@2", 2);
  world.StepAll(0);
  EXPECT_EQ(world.members[0].stages,
            (Stages{Stage::kCollectModel, Stage::kEnter, Stage::kCollectGradients, Stage::kUpdate,
                    Stage::kTurn, Stage::kCollectModel, Stage::kPair, Stage::kLoadModel}));
  EXPECT_TRUE(world.members[0].trainer.position().may_differ);
  for (Member& member : world.members) member.stages.clear();
  world.StepAll(1);
  EXPECT_EQ(world.members[1].stages,
            (Stages{Stage::kCollectGradients, Stage::kUpdate, Stage::kTurn, Stage::kCollectModel,
                    Stage::kPair, Stage::kLoadModel, Stage::kCollectModel, Stage::kMean,
                    Stage::kLoadModel, Stage::kQuit}));
  for (Member& member : world.members) {
    EXPECT_EQ(member.model, world.members[0].model);
    EXPECT_EQ(member.trainer.part(), Trainer::kNoPart);
    EXPECT_FALSE(member.trainer.position().may_differ);
    member.stages.clear();
  }
  world.StepAll(2);
  EXPECT_EQ(world.members[0].stages,
            (Stages{Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate}));
}

TEST(TrainerPartsTest, APassEndsNoPartOfPairs) {
  World world("adpsgd:then=allreduce@1", 2);
  Member& here = world.members[0];
  here.ready = here.trainer.OnPass(0);
  here.Run();
  ASSERT_TRUE(here.ready.exchange.has_value());
  EXPECT_EQ(here.ready.exchange->stage, Stage::kEnter);
  here.ready = here.trainer.OnExchangeEnd(Status::Ok(), {}, 0);
  ASSERT_TRUE(here.ready.end.has_value()) << "the only step of these pairs is to come";
  EXPECT_EQ(here.trainer.part(), 0);
}

TEST(TrainerPartsTest, WhatFollowsPairsWaitsNoLongerThanTheirMaxWait) {
  World world("adpsgd:max_wait=1s,then=allreduce@1", 2, true);
  Member& here = world.members[0];
  here.ready = here.trainer.OnStep("", 0);
  for (here.Run(); here.ready.exchange->stage != Stage::kAverageState; here.Run()) {
    StageResult due;
    due.is_due = true;
    here.ready = here.trainer.OnExchangeEnd(Status::Ok(), due, 0);
  }
  EXPECT_EQ(here.ready.deadline, kSecond);
  EXPECT_EQ(here.trainer.OnTick({1}, 2 * kSecond).end->code(), StatusCode::kTimeout);
  here.ready = here.trainer.OnStep("", 2 * kSecond);
  EXPECT_FALSE(here.ready.exchange.has_value()) << "it goes on";
  EXPECT_EQ(here.ready.deadline, 3 * kSecond);
  here.ready = here.trainer.OnExchangeEnd(Status::Ok(), {}, 0);
  here.Run();
  EXPECT_TRUE(here.ready.end->ok());
  EXPECT_EQ(here.trainer.step(), 1);
  here.ready = here.trainer.OnStep("", 0);
  here.Run();
  EXPECT_EQ(here.ready.deadline, kNever) << "the next part has no limit";
}

TEST(TrainerPartsTest, ARankOfPairsTrainsOnThoughOthersAreMissingInFinish) {
  World world("adpsgd", 2);
  world.StepAll(0);
  Member& early = world.members[0];
  early.stages.clear();
  early.ready = early.trainer.OnFinish(true, 0);
  early.Run();
  early.ready = early.trainer.OnExchangeEnd(Status::Timeout("rank 1 is missing"), {}, 0);
  early.Run();
  EXPECT_EQ(early.ready.end->code(), StatusCode::kTimeout);
  EXPECT_EQ(early.stages, (Stages{Stage::kCollectModel, Stage::kLoadModel})) << "its own model";
  EXPECT_TRUE(early.trainer.position().may_differ);
  const Trainer::Ready next = early.trainer.OnStep("", 0);
  ASSERT_TRUE(next.action.has_value());
  EXPECT_EQ(next.action->stage, Stage::kCollectGradients);
}

TEST(TrainerPartsTest, AFinishOfPairsThatIsNotStrictShowsTheMeanThatIsSeen) {
  World world("swarm:H=1", 2);
  world.StepAll(0);
  Member& early = world.members[0];
  early.ready = early.trainer.OnFinish(false, 0);
  early.Run();
  early.ready = early.trainer.OnExchangeEnd(Status::Timeout("rank 1 is missing"), {}, 0);
  ASSERT_TRUE(early.ready.exchange.has_value());
  EXPECT_EQ(early.ready.exchange->stage, Stage::kSeenMean);
  EXPECT_EQ(early.ready.exchange->unfit, "rank 1 is missing");
  early.ready = early.trainer.OnExchangeEnd(Status::Ok(), {}, 0);
  early.Run();
  EXPECT_TRUE(early.ready.end->ok());
}

TEST(TrainerPartsTest, WithinAPartACodecMayLeaveSomethingOut) {
  World world("local:H=1,codec=int8,then=allreduce@2", 2);
  for (int64_t step = 0; step < 2; ++step) {
    for (Member& member : world.members) {
      member.ready = member.trainer.OnStep("", 0);
      member.Run();
      ASSERT_EQ(member.ready.exchange->stage, Stage::kAverage);
      EXPECT_EQ(member.ready.exchange->is_whole, step == 1);
    }
    world.Drive();
  }
}

TEST(TrainerPartsTest, StateIsAveragedWhereAPartWithOwnUpdatesEnds) {
  const Stages state{Stage::kListState, Stage::kAverageState, Stage::kLoadState};
  for (const char* method : {"local:H=4,then=allreduce@2", "adpsgd:then=allreduce@2",
                             "dpsgd:topology=full,then=allreduce@2"}) {
    World world(method, 2, true), without(method, 2);
    for (int64_t step = 0; step < 3; ++step) {
      for (Member& member : world.members) member.stages.clear();
      for (Member& member : without.members) member.stages.clear();
      world.StepAll(step);
      without.StepAll(step);
      const Stages& stages = world.members[1].stages;
      const bool is_averaged =
          std::search(stages.begin(), stages.end(), state.begin(), state.end()) != stages.end();
      EXPECT_EQ(is_averaged, step == 1) << method << " step " << step;
      const Stages& other = without.members[1].stages;
      EXPECT_EQ(std::count(other.begin(), other.end(), Stage::kListState), 0);
    }
  }
  World warm("local:H=2,warmup_steps=1", 2, true);
  warm.StepAll(0);
  EXPECT_EQ(warm.members[0].stages,
            (Stages{Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate}))
      << "all had the same updates";
}

}  // namespace
}  // namespace covey
