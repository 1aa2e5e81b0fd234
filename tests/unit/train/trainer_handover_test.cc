// From rounds of gradients to rounds of models, which a rank does by itself; and a trainer that
// ends with a part of its method; and how many steps a rank of deltas counts.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/train/trainer_world.h"

namespace covey {
namespace {

constexpr MethodView kOfTwo{.size = 2, .rank = GroupIndex{0}};

// One rank, whose exchanges end as `version` and the flags say.
class Rank {
 public:
  explicit Rank(const std::string& method, int64_t end = kForever, bool vacates = false)
      : trainer(Parse(method), kOfTwo, 0, false, end, false, vacates) {}

  void Step() { Run(trainer.OnStep("", 0)); }
  // The stages of a call, and how it has ended.
  void Run(Trainer::Ready ready) {
    stages.clear();
    while (!ready.end.has_value()) {
      if (ready.action.has_value()) {
        stages.push_back(ready.action->stage);
        ready = trainer.OnAck(ready.action->number, true, 0);
        continue;
      }
      stages.push_back(ready.exchange->stage);
      parts.push_back(ready.exchange->part);
      if (ready.exchange->stage == Stage::kPublish) told = ready.exchange->steps;
      ready = trainer.OnExchangeEnd(Status::Ok(), ResultOf(*ready.exchange), 0);
    }
    EXPECT_TRUE(ready.end->ok()) << ready.end->message();
  }

  Trainer trainer;
  uint64_t executed = 0, published = 0;
  uint64_t own_step = 0;  // models: as which this rank counts; 0: as the last version
  int64_t steps = 0;      // the most that a rank has done
  int64_t told = 0;       // to have been done by this one
  bool is_overdue = false, is_needed = false, has_more = false, has_all = false;
  bool is_empty = false;
  std::vector<Stage> stages;
  std::vector<int64_t> parts;  // of all exchanges

 private:
  StageResult ResultOf(const Trainer::Exchange& exchange) const {
    StageResult result;
    result.executed = executed;
    result.version = exchange.stage == Stage::kPublish ? published : executed;
    result.step = exchange.step;  // kAgree
    result.misses = is_overdue;
    result.is_needed = is_needed && exchange.may_end;
    result.is_empty = is_empty;
    result.has_more = has_more && exchange.stage == Stage::kHandOver;
    result.has_all = has_all;
    result.own_step = own_step > 0 ? own_step : executed;
    const bool tells =
        exchange.stage == Stage::kRead || (exchange.stage == Stage::kAdopt && exchange.is_last);
    if (tells) result.steps = steps;
    return result;
  }
};

TEST(TrainerHandoverTest, ARankGoesOnWithRoundsOfModelsWhoeverIsOverdue) {
  Rank rank("wagma:warmup_steps=1,max_wait=1s");
  rank.executed = rank.published = 1;
  rank.is_overdue = rank.is_needed = true;
  rank.Step();
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kRead,
                    Stage::kUpdate, Stage::kPack, Stage::kLeaveState, Stage::kHandOver}));
  EXPECT_EQ(rank.trainer.step(), 1);
  EXPECT_EQ(rank.trainer.version(), 1);
  EXPECT_EQ(rank.trainer.part(), 1);
  rank.is_overdue = rank.is_needed = false;
  rank.executed = rank.published = 1;
  rank.Step();
  EXPECT_EQ(rank.stages, (Stages{Stage::kCollectModel, Stage::kBegin, Stage::kCollectGradients,
                                 Stage::kUpdate, Stage::kCollectModel, Stage::kPublish,
                                 Stage::kAwait, Stage::kMerge, Stage::kLoadModel}))
      << "what was left stays until all have come";
  rank.has_all = true;
  rank.parts.clear();
  rank.Step();
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kCollectGradients, Stage::kUpdate, Stage::kCollectModel, Stage::kPublish,
                    Stage::kAwait, Stage::kMerge, Stage::kRelease, Stage::kLoadModel}));
  EXPECT_EQ(rank.parts, (std::vector<int64_t>{1, 1, 1, 0}));
}

TEST(TrainerHandoverTest, WhatNoVersionHasIsTheFirstStepOfTheRanksOwn) {
  Rank rank("eager:max_wait=1s,then=wagma@2:max_wait=1s");
  rank.executed = 2;
  rank.published = 1;  // late
  rank.has_more = true;
  rank.own_step = 1;  // of the models
  rank.Step();
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kRead,
                    Stage::kUpdate, Stage::kRead, Stage::kUpdate, Stage::kHandOver, Stage::kRelease,
                    Stage::kCollectModel, Stage::kBegin, Stage::kUpdate, Stage::kCollectModel,
                    Stage::kPublish, Stage::kAwait, Stage::kMerge, Stage::kLoadModel}));
  EXPECT_EQ(rank.trainer.step(), 3) << "with that step";
  EXPECT_EQ(rank.trainer.version(), 3);
}

TEST(TrainerHandoverTest, ASettleInWhichRoundsEndGoesOnAsOneOfTheNextPart) {
  Stages of_rounds{Stage::kFlush, Stage::kRead, Stage::kUpdate, Stage::kMeet, Stage::kLeave};
  Rank rank("eager:max_wait=1s,then=allreduce@1"), other("eager:max_wait=1s,then=adpsgd@1");
  rank.executed = other.executed = 1;
  rank.Run(rank.trainer.OnSettle(0));
  EXPECT_EQ(rank.stages, of_rounds) << "a member that has left them in a step does nothing";
  EXPECT_EQ(rank.trainer.part(), Trainer::kNoPart);
  other.Run(other.trainer.OnSettle(0));
  for (const Stage stage : {Stage::kCollectModel, Stage::kEnter, Stage::kCollectModel,
                            Stage::kSettle, Stage::kLoadModel})
    of_rounds.push_back(stage);
  EXPECT_EQ(other.stages, of_rounds);
}

TEST(TrainerHandoverTest, MemoryOfRoundsIsVacatedBeforeItEnds) {
  Rank rank("eager:max_wait=1s,then=wagma@1:max_wait=1s", kForever, true);
  rank.executed = rank.published = 1;
  rank.Step();
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kRead,
                    Stage::kUpdate, Stage::kHandOver, Stage::kVacate, Stage::kRelease}));
  Rank other("eager:then=allreduce@1", kForever, true);
  other.executed = other.published = 1;
  other.Step();
  EXPECT_EQ(other.stages,
            (Stages{Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kRead,
                    Stage::kUpdate, Stage::kServe, Stage::kVacate, Stage::kLeave}));
}

TEST(TrainerHandoverTest, AVersionAfterTheLastIsNotWaitedFor) {
  Rank rank("eager:max_wait=1s,then=wagma@2:max_wait=1s");
  rank.Run(rank.trainer.OnPass(0));
  Trainer::Ready ready = rank.trainer.OnStep("", 0);
  ready = rank.trainer.OnAck(ready.action->number, true, 0);
  StageResult published;
  published.version = 3;
  ready = rank.trainer.OnExchangeEnd(Status::Ok(), published, 0);
  EXPECT_EQ(ready.exchange->stage, Stage::kAwait);
  EXPECT_EQ(ready.exchange->version, 2u);
}

TEST(TrainerHandoverTest, APassThatComesToTheEndHandsOver) {
  Rank rank("eager:progress=skip,max_wait=1s,then=wagma@2:max_wait=1s");
  rank.executed = 2;
  rank.has_more = true;
  rank.Run(rank.trainer.OnPass(0));
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kLook, Stage::kRead, Stage::kUpdate, Stage::kRead, Stage::kUpdate,
                    Stage::kHandOver, Stage::kRelease, Stage::kCollectModel, Stage::kBegin,
                    Stage::kUpdate, Stage::kCollectModel, Stage::kPublish, Stage::kAwait}));
  EXPECT_EQ(rank.trainer.step(), 3);
  rank.Run(rank.trainer.OnPass(0));
  EXPECT_EQ(rank.stages, Stages{}) << "it has nothing to do";
}

TEST(TrainerHandoverTest, AFinishThatComesToTheEndGoesOnInTheRoundsOfModels) {
  Rank rank("wagma:warmup_steps=1,max_wait=1s");
  rank.executed = rank.published = 1;
  rank.is_overdue = rank.is_needed = rank.has_more = true;
  rank.Run(rank.trainer.OnFinish(true, 0));
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kFlush, Stage::kRead, Stage::kUpdate, Stage::kPack, Stage::kLeaveState,
                    Stage::kHandOver, Stage::kCollectModel, Stage::kBegin, Stage::kUpdate,
                    Stage::kCollectModel, Stage::kPublish, Stage::kFlush, Stage::kMerge,
                    Stage::kLoadModel, Stage::kMeet, Stage::kRelease}))
      << "it meets nobody where others may have gone on";
  EXPECT_EQ(rank.trainer.step(), 2);
}

TEST(TrainerHandoverTest, ATrainerEndsWithAPartInWhoseLastVersionNoMemberIsOverdue) {
  Rank rank("eager:max_wait=1s,then=allreduce@1", 1);
  rank.executed = rank.published = 1;
  rank.is_overdue = true;
  rank.Step();
  EXPECT_FALSE(rank.trainer.position().is_over) << "steps go on";
  rank.executed = rank.published = 2;
  rank.is_overdue = false;
  rank.is_needed = true;
  rank.Step();
  EXPECT_EQ(rank.stages,
            (Stages{Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kRead,
                    Stage::kUpdate, Stage::kServe, Stage::kPack, Stage::kLeaveState}));
  EXPECT_TRUE(rank.trainer.position().is_over);
  EXPECT_EQ(rank.trainer.position().version, 2);
}

TEST(TrainerHandoverTest, ATrainerThatEndsHandsNothingOver) {
  Rank rank("wagma:warmup_steps=1,max_wait=1s", 1);
  rank.executed = rank.published = 1;
  rank.Step();
  EXPECT_EQ(rank.stages, (Stages{Stage::kCollectGradients, Stage::kPublish, Stage::kAwait,
                                 Stage::kRead, Stage::kUpdate, Stage::kServe}));
  EXPECT_TRUE(rank.trainer.position().is_over);
  EXPECT_EQ(RoundPart::LastVersion(Parse("wagma:warmup_steps=1"), kOfTwo, 0, 1), 0u);
  EXPECT_EQ(RoundPart::LastVersion(Parse("wagma:warmup_steps=1"), kOfTwo, 0, kForever), 1u);
}

TEST(TrainerHandoverTest, PartsOfOneModelEachEndWithoutAMean) {
  Rank pairs("adpsgd:then=allreduce@1", 1);
  pairs.Step();
  EXPECT_EQ(std::count(pairs.stages.begin(), pairs.stages.end(), Stage::kMean), 0);
  EXPECT_TRUE(pairs.trainer.position().is_over);
  Rank deltas("diloco:H=2,max_wait=1s,then=allreduce@2", 2);
  deltas.Step();
  deltas.executed = deltas.published = 1;
  EXPECT_FALSE(deltas.trainer.position().is_over);
  deltas.is_needed = true;
  deltas.Step();
  EXPECT_EQ(std::count(deltas.stages.begin(), deltas.stages.end(), Stage::kFlush), 0);
  const Stages last(deltas.stages.end() - 2, deltas.stages.end());
  EXPECT_EQ(last, (Stages{Stage::kGive, Stage::kLeaveState})) << "for a rank that was in finish()";
  EXPECT_TRUE(deltas.trainer.position().is_over);
}

TEST(TrainerHandoverTest, AfterItsEndATrainerRefusesSteps) {
  Rank rank("allreduce:then=eager@1", 1);
  rank.Step();
  EXPECT_TRUE(rank.trainer.position().is_over);
  EXPECT_EQ(rank.trainer.part(), Trainer::kNoPart);
  EXPECT_EQ(rank.trainer.OnStep("", 0).end->code(), StatusCode::kInvalidArgument);
}

TEST(TrainerHandoverTest, ATrainerEndsWhereAPartDoes) {
  const MethodChoice method = Parse("allreduce:then=eager@4,then=dpsgd@9:topology=bipartite");
  const MethodView odd{.size = 3, .rank = GroupIndex{0}};
  EXPECT_TRUE(Trainer::Check(method, odd, 0, 9).ok()) << "what follows is not looked at";
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 5}, {4, 4}, {5, 4}, {0, 12}})
    EXPECT_EQ(Trainer::Check(method, odd, begin, end).code(), StatusCode::kInvalidArgument)
        << begin << " to " << end;
  EXPECT_EQ(Trainer::PartsOf(Admission::kRounds, method, odd, 0, 4), std::vector<int64_t>{});
  EXPECT_EQ(Trainer::PartsOf(Admission::kRounds, method, odd, 0, 9), std::vector<int64_t>{4});
}

TEST(TrainerHandoverTest, WithDeltasOfOthersARankCountsTheirSteps) {
  Rank rank("diloco:H=1,max_wait=1s");
  rank.executed = rank.published = 1;
  rank.steps = 2;
  rank.Step();
  EXPECT_EQ(rank.told, 1);
  EXPECT_EQ(rank.trainer.version(), 2);
  rank.executed = rank.published = 2;
  rank.Step();
  EXPECT_EQ(rank.told, 2);
  EXPECT_EQ(rank.trainer.version(), 2) << "no rank has done a third step";
  rank.executed = rank.published = 3;
  rank.Step();
  EXPECT_EQ(rank.told, 3);
  EXPECT_EQ(rank.trainer.version(), 3) << "the others have done fewer";
  EXPECT_EQ(rank.trainer.step(), 3);
  rank.Run(rank.trainer.OnFinish(true, 0));
  EXPECT_EQ(rank.trainer.version(), 2) << "its own last step was dropped";
  rank.executed = rank.published = 4;
  rank.Step();
  EXPECT_EQ(rank.trainer.version(), 3);
}

TEST(TrainerHandoverTest, WithDeltasNoRankCountsBeyondTheEndOfAPart) {
  Rank rank("diloco:H=2,max_wait=1s,then=allreduce@5");
  rank.steps = 8;
  for (const int64_t version : {1, 5, 5, 5}) {
    if (rank.trainer.step() == 1) rank.executed = 2, rank.published = 1;
    if (rank.trainer.step() == 3) rank.published = 2;
    rank.Step();
    EXPECT_EQ(rank.trainer.version(), version) << "step " << rank.trainer.step();
    EXPECT_EQ(rank.trainer.part(), 0);
  }
  rank.executed = rank.published = 3;
  rank.Step();
  EXPECT_EQ(rank.trainer.step(), 5);
  EXPECT_EQ(rank.trainer.version(), 5);
  EXPECT_EQ(rank.trainer.part(), Trainer::kNoPart);
}

}  // namespace
}  // namespace covey
