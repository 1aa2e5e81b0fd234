// Trainers of all ranks in one thread: what is exchanged when, what of a failed step is kept, and
// the same models as by the formulas.
#include "core/train/trainer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/train/trainer_world.h"

namespace covey {
namespace {

TEST(TrainerTest, StagesFollowFromThePlan) {
  const struct {
    const char* method;
    Stages first, second;
  } cases[] = {
      {"allreduce",
       {Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate},
       {Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate}},
      {"local:H=2",
       {Stage::kCollectGradients, Stage::kUpdate},
       {Stage::kCollectGradients, Stage::kUpdate, Stage::kCollectModel, Stage::kAverage,
        Stage::kLoadModel}},
      {"dpsgd:topology=full",
       {Stage::kCollectGradients, Stage::kCollectModel, Stage::kMix, Stage::kLoadModel,
        Stage::kUpdate},
       {Stage::kCollectGradients, Stage::kCollectModel, Stage::kMix, Stage::kLoadModel,
        Stage::kUpdate}},
      {"dpsgd:order=atc,warmup_steps=1",
       {Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate},
       {Stage::kCollectGradients, Stage::kUpdate, Stage::kCollectModel, Stage::kMix,
        Stage::kLoadModel}},
  };
  for (const auto& expected : cases) {
    World world(expected.method, 4);
    world.StepAll(0);
    for (Member& member : world.members) {
      EXPECT_EQ(member.stages, expected.first) << expected.method;
      EXPECT_TRUE(member.ready.end.has_value() && member.ready.end->ok());
      member.stages.clear();
    }
    world.StepAll(1);
    for (const Member& member : world.members)
      EXPECT_EQ(member.stages, expected.second) << expected.method;
    EXPECT_EQ(world.members[0].trainer.version(), 2);
  }
}

TEST(TrainerTest, ModelsAreThoseOfTheFormulas) {
  constexpr int kSize = 4, kSteps = 11;
  for (const char* method :
       {"allreduce", "local:H=4", "local:H=2,warmup_steps=3", "local:H=4,then=allreduce@6"}) {
    World world(method, kSize);
    const MethodChoice choice = Parse(method);
    std::vector<double> models(kSize, 1.0);
    for (int64_t step = 0; step < kSteps; ++step) {
      world.StepAll(step);
      double mean = 0;
      for (int i = 0; i < kSize; ++i) mean += GradientOf(i, step) / kSize;
      const MethodPlan plan = choice.Plan({.size = kSize, .rank = GroupIndex{0}}, step);
      double sum = 0;
      for (size_t i = 0; i < kSize; ++i) {
        models[i] -=
            plan.payload == Payload::kGradients ? mean : GradientOf(static_cast<int>(i), step);
        sum += models[i];
      }
      if (plan.payload == Payload::kModel) models.assign(kSize, sum / kSize);
      for (size_t i = 0; i < kSize; ++i)
        EXPECT_EQ(world.members[i].model, models[i]) << method << " step " << step;
    }
    world.FinishAll();
    for (const Member& member : world.members)
      EXPECT_EQ(member.model, world.members[0].model) << method;
  }
}

TEST(TrainerTest, FinishAveragesOnlyModelsThatMayDiffer) {
  World equal("allreduce", 2), apart("local:H=8", 2);
  for (World* world : {&equal, &apart}) {
    world->StepAll(0);
    for (Member& member : world->members) member.stages.clear();
    world->FinishAll();
  }
  EXPECT_EQ(equal.members[0].stages, Stages{Stage::kAgree});
  EXPECT_EQ(apart.members[0].stages,
            (Stages{Stage::kAgree, Stage::kCollectModel, Stage::kAverage, Stage::kLoadModel}));
  EXPECT_FALSE(apart.members[1].trainer.position().may_differ);
}

TEST(TrainerTest, AfterFinishAllAreAtTheFurthestStep) {
  World world("local:H=100", 2);
  Member& ahead = world.members[1];
  world.StepAll(0);
  ahead.ready = ahead.trainer.OnStep("", 0);
  ahead.Run();
  ASSERT_EQ(ahead.trainer.step(), 2);
  world.FinishAll();
  for (const Member& member : world.members) EXPECT_EQ(member.trainer.step(), 2);
  EXPECT_EQ(world.members[0].trainer.version(), 1);  // its own updates
}

TEST(TrainerTest, AStepThatFailsBeforeItsUpdateIsDoneAnew) {
  World world("allreduce", 2);
  for (Member& member : world.members) member.ready = member.trainer.OnStep("", 0);
  world.Drive(Status::Mismatch("shapes differ"));
  for (const Member& member : world.members) {
    EXPECT_EQ(member.ready.end->code(), StatusCode::kMismatch);
    EXPECT_EQ(member.trainer.step(), 0);
    EXPECT_EQ(member.model, 1);
    EXPECT_TRUE(member.trainer.IsIdle());
  }
  world.StepAll(0);
  EXPECT_EQ(world.members[0].trainer.version(), 1);
}

TEST(TrainerTest, AStepThatFailsAfterItsUpdateGoesOnWithTheExchange) {
  World world("local:H=1", 2);
  for (size_t i = 0; i < 2; ++i) {
    world.members[i].given = GradientOf(static_cast<int>(i), 0);
    world.members[i].ready = world.members[i].trainer.OnStep("", 0);
  }
  world.Drive(Status::Aborted("a message was lost"));
  for (Member& member : world.members) {
    EXPECT_EQ(member.ready.end->code(), StatusCode::kAborted);
    EXPECT_EQ(member.trainer.version(), 1) << "invariant 2";
    EXPECT_EQ(member.trainer.OnFinish(true, 0).end->code(), StatusCode::kInvalidArgument);
    member.stages.clear();
  }
  world.StepAll(0);  // its gradients are not taken
  for (const Member& member : world.members) {
    EXPECT_EQ(member.stages, (Stages{Stage::kAverage, Stage::kLoadModel}));
    EXPECT_EQ(member.trainer.version(), 1);
    EXPECT_EQ(member.model, 1 - (GradientOf(0, 0) + GradientOf(1, 0)) / 2);
  }
}

TEST(TrainerTest, AnAdapterThatReducesIsAskedForTheUpdateAlone) {
  const MethodView view{.size = 2, .rank = GroupIndex{0}};
  Trainer trainer(Parse("allreduce:clip_norm=1,then=local@2:H=2"), view, 0, false, kForever, true);
  Trainer::Ready ready = trainer.OnStep("", 0);
  ASSERT_TRUE(ready.action.has_value());
  EXPECT_EQ(ready.action->stage, Stage::kUpdate);
  EXPECT_FALSE(ready.action->is_own);
  // A failed exchange leaves the step undone: finish() may follow, or the step again.
  ready = trainer.OnAck(ready.action->number, false, 0);
  EXPECT_EQ(ready.end->code(), StatusCode::kAborted);
  EXPECT_TRUE(trainer.IsIdle());
  EXPECT_EQ(trainer.version(), 0);
  for (int64_t step = 0; step < 2; ++step) {
    ready = trainer.OnStep("", 0);
    ready = trainer.OnAck(ready.action->number, true, 0);
    EXPECT_TRUE(ready.end->ok());
  }
  EXPECT_EQ(trainer.version(), 2);
  EXPECT_FALSE(trainer.position().may_differ);
  ready = trainer.OnStep("", 0);
  EXPECT_EQ(ready.action->stage, Stage::kCollectGradients) << "of its own, in the next part";
}

TEST(TrainerTest, MaxWaitHaltsAStepWhoseExchangeGoesOn) {
  World world("dpsgd:topology=full,max_wait=2s", 2);
  Member& early = world.members[0];
  early.given = GradientOf(0, 0);
  early.ready = early.trainer.OnStep("", 0);
  early.Run();
  EXPECT_EQ(early.ready.deadline, 2 * kSecond);
  const Trainer::Exchange begun = *early.ready.exchange;
  EXPECT_FALSE(early.trainer.OnTick({1}, kSecond).end.has_value());
  early.ready = early.trainer.OnTick({1}, 2 * kSecond);
  EXPECT_EQ(early.ready.end->code(), StatusCode::kTimeout);
  EXPECT_NE(early.ready.end->message().find("2000 ms (max_wait) for rank 1"), std::string::npos);
  early.ready = early.trainer.OnStep("", 3 * kSecond);
  EXPECT_FALSE(early.ready.exchange.has_value()) << "it is under way";
  EXPECT_EQ(early.ready.deadline, 5 * kSecond);
  EXPECT_EQ(begun.stage, Stage::kMix);
}

TEST(TrainerTest, AStepThatWaitsIsTakenUpByTheSameCallAlone) {
  World world("dpsgd:topology=full,max_wait=2s", 2);
  Member& early = world.members[0];
  early.ready = early.trainer.OnStep("", 0);
  early.Run();
  ASSERT_TRUE(early.ready.exchange.has_value());
  const Trainer::Ready again = early.trainer.OnStep("3 NaN", kSecond);
  EXPECT_FALSE(again.exchange.has_value() || again.action.has_value() || again.end.has_value());
  EXPECT_EQ(again.deadline, 2 * kSecond) << "as if it had not been interrupted";
  EXPECT_EQ(early.trainer.OnFinish(true, kSecond).end->code(), StatusCode::kInvalidArgument);
}

TEST(TrainerTest, WhatMustNotBeUsedIsRefusedHereOrByAll) {
  World all("allreduce", 2), alone("local:H=2", 2);
  all.members[0].ready = all.members[0].trainer.OnStep("3 NaN", 0);
  all.members[0].Run();
  EXPECT_EQ(all.members[0].ready.exchange->unfit, "3 NaN");
  const Trainer::Ready refused = alone.members[0].trainer.OnStep("3 NaN", 0);
  EXPECT_EQ(refused.end->code(), StatusCode::kNotFinite);
  EXPECT_TRUE(alone.members[0].trainer.IsIdle());
  EXPECT_EQ(alone.members[0].trainer.step(), 0);
}

TEST(TrainerTest, WrongCallsAreRefusedAndChangeNothing) {
  World world("local:H=2", 2);
  Member& member = world.members[0];
  member.ready = member.trainer.OnStep("", 0);
  const uint64_t number = member.ready.action->number;
  for (const Trainer::Ready& wrong :
       {member.trainer.OnStep("", 0), member.trainer.OnFinish(true, 0),
        member.trainer.OnAck(number + 1, true, 0)})
    EXPECT_EQ(wrong.end->code(), StatusCode::kInvalidArgument);
  member.Run();
  EXPECT_TRUE(member.ready.end->ok());
  EXPECT_EQ(member.trainer.OnAck(number, true, 0).end->code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(member.trainer.version(), 1);
}

TEST(TrainerTest, ARestoredVersionIsTheOneThatItsRoundsCountFrom) {
  const MethodView view{.size = 2, .rank = GroupIndex{0}};
  for (const char* method : {"eager", "wagma:S=2,tau=3", "eager:then=allreduce@40"}) {
    Trainer trainer(Parse(method), view, 6);
    Trainer::Position position = trainer.position();
    position.version = 7;
    position.step = 6;
    EXPECT_EQ(trainer.Restore(position).code(), StatusCode::kInvalidArgument)
        << method << ": the next version would be 7 again";
    EXPECT_EQ(trainer.version(), 6) << method;
    Trainer another(Parse(method), view, 7);
    position.begin = 7;
    EXPECT_TRUE(another.Restore(position).ok()) << method;
    EXPECT_EQ(another.version(), 7) << method;
    EXPECT_EQ(another.step(), 6) << method;
  }
}

TEST(TrainerTest, AnActionThatWasNotDoneIsGivenAgain) {
  World world("local:H=2", 2);
  Trainer& trainer = world.members[0].trainer;
  const Trainer::Ready first = trainer.OnStep("", 0);
  const Trainer::Ready update = trainer.OnAck(first.action->number, true, 0);
  ASSERT_EQ(update.action->stage, Stage::kUpdate);
  EXPECT_EQ(trainer.OnAck(update.action->number, false, 0).end->code(), StatusCode::kAborted);
  EXPECT_EQ(trainer.version(), 0);
  const Trainer::Ready again = trainer.OnStep("", 0);
  EXPECT_EQ(again.action->stage, Stage::kUpdate) << "no new gradients";
  EXPECT_TRUE(trainer.OnAck(again.action->number, true, 0).end->ok());
  EXPECT_EQ(trainer.version(), 1);
}

TEST(TrainerTest, APassThatHasNotBegunIsTakenUpOrGivenUp) {
  World world("eager:progress=skip,max_wait=1s", 2), plain("allreduce", 2);
  EXPECT_TRUE(plain.members[0].trainer.OnPass(0).end->ok()) << "it has nothing to do";
  Trainer& trainer = world.members[0].trainer;
  Trainer::Ready ready = trainer.OnPass(0);
  ASSERT_EQ(ready.exchange->stage, Stage::kLook);
  StageResult result;
  result.executed = 1;
  ready = trainer.OnExchangeEnd(Status::Ok(), result, 0);
  ASSERT_EQ(ready.exchange->stage, Stage::kRead);
  ready = trainer.OnExchangeEnd(Status::Ok(), result, 0);
  ASSERT_EQ(ready.action->stage, Stage::kUpdate);
  EXPECT_EQ(trainer.OnAck(ready.action->number, false, 0).end->code(), StatusCode::kAborted);
  ready = trainer.OnPass(0);
  ASSERT_EQ(ready.action->stage, Stage::kUpdate);
  EXPECT_EQ(trainer.OnAck(ready.action->number, false, 0).end->code(), StatusCode::kAborted);
  EXPECT_EQ(trainer.version(), 0);
  EXPECT_EQ(trainer.OnStep("", 0).action->stage, Stage::kCollectGradients) << "it is given up";
}

TEST(TrainerTest, ClippingIsOfTheUpdateAlone) {
  World world("allreduce:clip_norm=0.5", 2);
  world.members[0].ready = world.members[0].trainer.OnStep("", 0);
  world.members[0].Run();
  const Trainer::Ready next = world.members[0].trainer.OnExchangeEnd(Status::Ok(), {}, 0);
  EXPECT_EQ(next.action->stage, Stage::kUpdate);
  EXPECT_EQ(next.action->clip_norm, 0.5);
}

TEST(TrainerTest, ItsRowsAreOfTheHostsOfItsRanks) {
  const std::vector<int32_t> hosts = {0, 0, 1, 1};
  Trainer trainer(Parse("dpsgd:topology=full,cross_every=2"),
                  {.size = 4, .rank = GroupIndex{1}, .hosts = hosts}, 0);
  for (const int32_t partner : {0, 3, 0}) {
    Trainer::Ready ready = trainer.OnStep("", 0);
    while (ready.action.has_value()) ready = trainer.OnAck(ready.action->number, true, 0);
    ASSERT_TRUE(ready.exchange.has_value());
    ASSERT_EQ(ready.exchange->row.from.size(), 1u);
    EXPECT_EQ(ready.exchange->row.from[0].rank, partner);
    ready = trainer.OnExchangeEnd(Status::Ok(), {}, 0);
    while (ready.action.has_value()) ready = trainer.OnAck(ready.action->number, true, 0);
    ASSERT_TRUE(ready.end.has_value());
  }
}

TEST(TrainerTest, ATopologyThatDoesNotFitIsRefused) {
  const MethodView odd{.size = 3, .rank = GroupIndex{0}};
  for (const char* method : {"dpsgd:topology=bipartite", "adpsgd:topology=bipartite"}) {
    const Status status = Trainer::Check(Parse(method), odd);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << method;
  }
}

}  // namespace
}  // namespace covey
