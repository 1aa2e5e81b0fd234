// Trainers of all ranks in one thread, whose exchanges are done once all are there.
#ifndef COVEY_TESTS_UNIT_TRAIN_TRAINER_WORLD_H_
#define COVEY_TESTS_UNIT_TRAIN_TRAINER_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/topology.h"
#include "core/train/trainer.h"

namespace covey {

inline double GradientOf(int rank, int64_t step) {
  return static_cast<double>((rank + 1) * 16 + step * 4);  // sums and halves are exact
}

inline MethodChoice Parse(const std::string& text) {
  MethodChoice choice;
  const Status parsed = ParseMethod(text, &choice);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return choice;
}

// One rank: a model of one number, plain SGD with rate 1.
struct Member {
  Trainer trainer;
  double model = 1;
  double given = 0;               // of the step
  double gradient = 0, held = 0;  // in the trainer's memory
  Trainer::Ready ready;
  std::vector<Stage> stages;  // as they came

  Member(const std::string& method, int size, int rank, bool has_state = false)
      : trainer(Parse(method), {.size = size, .rank = GroupIndex{rank}}, 0, has_state) {}

  // Does actions until an exchange is awaited, or the call has ended.
  void Run() {
    while (ready.action.has_value()) {
      const Trainer::Action action = *ready.action;
      stages.push_back(action.stage);
      if (action.stage == Stage::kCollectGradients) gradient = given;
      if (action.stage == Stage::kCollectModel) held = model;
      if (action.stage == Stage::kLoadModel) model = held;
      if (action.stage == Stage::kUpdate) model -= gradient;
      ready = trainer.OnAck(action.number, true, 0);
    }
  }
};

class World {
 public:
  World(const std::string& method, int size, bool has_state = false) {
    for (int i = 0; i < size; ++i) members.emplace_back(method, size, i, has_state);
  }

  // All make the call; exchanges are done once all are there.
  void StepAll(int64_t step) {
    for (size_t i = 0; i < members.size(); ++i) {
      members[i].given = GradientOf(static_cast<int>(i), step);
      members[i].ready = members[i].trainer.OnStep("", 0);
    }
    Drive();
  }
  void FinishAll() {
    for (Member& member : members) member.ready = member.trainer.OnFinish(true, 0);
    Drive();
  }
  void Drive(const Status& outcome = Status::Ok()) {
    for (;;) {
      for (Member& member : members) member.Run();
      if (!members[0].ready.exchange.has_value()) return;
      Exchange(outcome);
      if (!outcome.ok()) return;
    }
  }

  std::vector<Member> members;

 private:
  void Exchange(const Status& outcome) {
    const Stage stage = members[0].ready.exchange->stage;
    StageResult agreed;
    double gradients = 0, models = 0;
    std::vector<double> before;
    for (Member& member : members) {
      ASSERT_TRUE(member.ready.exchange.has_value());
      ASSERT_EQ(member.ready.exchange->stage, stage) << "invariant 1";
      member.stages.push_back(stage);
      gradients += member.gradient;
      models += member.held;
      before.push_back(member.held);
      agreed.may_differ |= member.ready.exchange->may_differ;
      agreed.step = std::max(agreed.step, member.ready.exchange->step);
    }
    const auto size = static_cast<double>(members.size());
    for (Member& member : members) {
      const MixingRow& row = member.ready.exchange->row;
      const auto own = static_cast<size_t>(&member - members.data());
      if (outcome.ok() && stage == Stage::kReduce) member.gradient = gradients / size;
      const bool is_mean = stage == Stage::kAverage || stage == Stage::kMean;
      if (outcome.ok() && is_mean) member.held = models / size;
      agreed.is_due = true;
      if (outcome.ok() && stage == Stage::kMix) {
        member.held = row.own * before[own];
        for (const Neighbor& from : row.from)
          member.held += from.weight * before[static_cast<size_t>(from.rank)];
      }
      member.ready = member.trainer.OnExchangeEnd(outcome, agreed, 0);
    }
  }
};

using Stages = std::vector<Stage>;

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_TRAIN_TRAINER_WORLD_H_
