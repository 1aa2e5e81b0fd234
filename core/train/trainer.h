// One rank's training by a method: what the ranks exchange when, and what the rank's adapter does
// in between.
//
// A step, and a finish(), is a list of stages, one after the other: each is an exchange of the
// ranks or an action of the adapter. Its list follows from the plan (core/method/method.h):
//
//   payload      partners        stages
//   kNone        -               GRADIENTS, UPDATE
//   kGradients   all             GRADIENTS, reduce, UPDATE
//   kModel       all             GRADIENTS, UPDATE, MODEL, average, LOAD
//   kModel       neighbors, cwa  GRADIENTS, MODEL, mix, LOAD, UPDATE
//   kModel       neighbors, atc  GRADIENTS, UPDATE, MODEL, mix, LOAD
//   finish()     -               agree; if models of any rank may differ: MODEL, average, LOAD
//
//   phase       event                      next
//   kIdle       step, finish               the first stage
//   kExchange   it ended well              the next stage; after the last: kIdle, END(ok)
//               it failed, before UPDATE   kIdle, END(error): the next step is this one again
//               it failed, after UPDATE    kHalted, END(error): the exchange begins anew
//               tick, max_wait is over     kHalted, END(kTimeout): the exchange goes on
//   kAction     acknowledged, done         the next stage; after the last: kIdle, END(ok)
//               acknowledged, not done     kHalted, END(kAborted): the action is to be done anew
//   kHalted     the same call again        the stage it halted at; nothing new is taken
//
// Invariants:
//  1. Every member begins the same exchanges in the same order, if all have made the same calls.
//  2. A step's UPDATE is acknowledged as done at most once, and only then does version() grow.
//  3. A failed step has changed nothing, or has done its UPDATE, and its other stages follow.
//
// Sans-IO, in the manner of raft's Ready: events and time in, what is to be done out. One thread at
// a time.
#ifndef COVEY_CORE_TRAIN_TRAINER_H_
#define COVEY_CORE_TRAIN_TRAINER_H_

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/method/method.h"

namespace covey {

enum class Stage : uint8_t {
  kReduce,            // the gradients of all
  kAgree,             // whether models of any rank may differ, and the furthest step
  kAverage,           // the models of all
  kMix,               // the model with those of neighbors
  kCollectGradients,  // the rank's gradients are to lie in the trainer's memory
  kCollectModel,      // its model is to lie there
  kUpdate,            // the gradients that lie there are to be applied to the model
  kLoadModel,         // the model that lies there is the rank's from now on
};

class Trainer {
 public:
  // An exchange of all members, to be begun now.
  struct Exchange {
    Stage stage = Stage::kReduce;
    int64_t step = 0;
    std::string unfit;        // kReduce: why this rank's gradients must not be mixed; empty: no
    MixingRow row;            // kMix, by member index
    bool may_differ = false;  // kAgree: of this rank
  };
  // kAgree's result: the largest of all members' values.
  struct Agreed {
    bool may_differ = false;
    int64_t step = 0;
  };
  struct Action {
    uint64_t number = 0;
    Stage stage = Stage::kUpdate;
    double clip_norm = 0;  // kUpdate: the largest norm of the gradients; 0: any
  };
  // The obligation after an event. All empty: wait for the next event, until `deadline`.
  struct Ready {
    std::optional<Exchange> exchange;
    std::optional<Action> action;
    std::optional<Status> end;  // of the step or the finish()
    Time deadline = kNever;
  };

  // Whether this trainer has all exchanges of the method.
  static Status Check(const MethodChoice& choice, const MethodView& view);

  // REQUIRES: Check. `step`: the first one; mostly 0.
  Trainer(MethodChoice choice, const MethodView& view, int64_t step);

  // The rank has gradients for the next step. `unfit`: why they must not be used; empty: no reason.
  // kInvalidArgument at once: a finish() has halted, or a step is under way.
  Ready OnStep(const std::string& unfit, Time now);
  // Models become the mean of all, if those of any rank may differ.
  Ready OnFinish(Time now);
  // REQUIRES: this rank waits for it, so a halted step was taken up again. `agreed`: of kAgree.
  Ready OnExchangeEnd(const Status& status, const Agreed& agreed, Time now);
  // kInvalidArgument at once: `number` is not the action's under way.
  Ready OnAck(uint64_t number, bool done, Time now);
  // `missing` names the members that have not come to the exchange under way.
  Ready OnTick(const std::string& missing, Time now);

  // Updates done; in these methods also the number of the next step.
  int64_t version() const { return version_; }
  int64_t step() const { return step_; }
  // Since the last average of all this rank has done updates by itself.
  bool may_differ() const { return may_differ_; }
  // To be called between two steps: where a checkpoint was taken.
  void Restore(int64_t version, int64_t step, bool may_differ);
  bool IsIdle() const { return phase_ == Phase::kIdle; }

 private:
  enum class Phase : uint8_t { kIdle, kExchange, kAction, kHalted };

  Ready Begin(std::vector<Stage> stages, bool is_finish, Time now);
  Ready Enter(Time now);
  Ready Next(Time now);
  Ready Halt(const Status& why, bool is_to_begin);
  Ready EndWith(const Status& status);
  static Ready Refuse(const std::string& why);
  static std::vector<Stage> StagesOf(const MethodPlan& plan);
  Exchange ExchangeOf(Stage stage) const;

  MethodChoice choice_;
  MethodView view_;
  int64_t version_ = 0, step_ = 0;
  bool may_differ_ = false;
  Phase phase_ = Phase::kIdle;
  std::vector<Stage> stages_;  // of the step or finish() under way
  size_t at_ = 0;
  bool is_finish_ = false;
  bool is_updated_ = false;    // the step's UPDATE was done
  bool is_under_way_ = false;  // kHalted: the exchange goes on
  std::string unfit_;
  uint64_t number_ = 0;  // of the last action
  Time since_ = 0;       // this rank waits for the exchange
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_TRAINER_H_
