// One rank's training by a method: what the ranks exchange when, and what the rank's adapter does
// in between.
//
// A step, and a finish(), is a list of stages, one after the other: each is an exchange of the
// ranks or an action of the adapter. Its list follows from the plan (core/method/method.h):
//
//   payload      partners        stages
//   kNone        -               GRADIENTS, UPDATE
//   kGradients   all             GRADIENTS, reduce, UPDATE; or UPDATE alone: the adapter reduces
//   any          rounds          as round_part.h says
//   kModel       pairs           as pair_part.h says
//   kModel       all             GRADIENTS, UPDATE, MODEL, average, LOAD
//   kModel       neighbors, cwa  GRADIENTS, MODEL, mix, LOAD, UPDATE
//   kModel       neighbors, atc  GRADIENTS, UPDATE, MODEL, mix, LOAD
//   any call     rounds          after the last version of gradients before rounds of models: PACK,
//                                leave state (if ranks may need it), hand over, release (or later);
//                                if a contribution is left: a step of models without GRADIENTS
//   any call     rounds          VACATE before they are left or released, if the adapter asks
//   finish()     rounds          as round_part.h says; then of the next part, if these end
//   finish()     pairs           as pair_part.h says
//   finish()     others          agree; if models of any rank may differ: MODEL, average, LOAD
//
// Where a part ends in which ranks had updates of their own, and another one follows, their
// optimizers keep different things, and equal models would part with the next update: LIST STATE,
// average state, LOAD STATE, if the adapter has any.
//
//   phase       event                      next
//   kIdle       step, finish, pass         the first stage
//   kExchange   it ended well              the next stage; after the last: kIdle, END(ok)
//               it failed, before UPDATE   kIdle, END(error): the next step is this one again
//               it failed, after UPDATE    kHalted, END(error): the exchange begins anew
//               or after publish
//               tick, max_wait is over     kHalted, END(kTimeout): the exchange goes on
//   kAction     acknowledged, done         the next stage; after the last: kIdle, END(ok)
//               acknowledged, not done     kHalted, END(kAborted): the action is to be done anew
//               the same, where the        kIdle, END(kAborted): the next step is this one again
//               adapter reduces
//   kHalted     the same call again        the stage it halted at; nothing new is taken
//   kHalted     step, in finish() of pairs the first stage: the rank trains on
//   kExchange   the same call again        the same: the adapter was interrupted while it waited
//
// Invariants:
//  1. Every member begins the same exchanges in the same order, if all have made the same calls.
//  2. A step's UPDATE is acknowledged as done at most once, and only then does version() grow. Of
//     deltas it grows with a version in which others have done more steps, and not with an update
//     by which this rank has done no more than they.
//  3. A failed step has changed nothing, or has done its UPDATE, and its other stages follow.
//  4. In rounds what was published is not published again. In those of gradients replicas are equal
//     at equal version(), and a step may have several UPDATEs, or none.
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
#include "core/train/pair_part.h"
#include "core/train/pass_clock.h"
#include "core/train/round_part.h"
#include "core/train/stage.h"

namespace covey {

class Trainer {
 public:
  static constexpr int64_t kNoPart = -1;

  // An exchange, to be begun now.
  struct Exchange {
    Stage stage = Stage::kReduce;
    int64_t step = 0;
    // kReduce, kPublish: why this rank's gradients must not be mixed; kGoOn, kSeenMean: why others
    // are not waited for
    std::string unfit;
    MixingRow row;            // kMix, by member index
    bool may_differ = false;  // kAgree: of this rank
    int64_t part = kNoPart;   // the part whose rounds or pairs these are, by its first version
    uint64_t applied = 0;     // the last of the rounds' versions that this rank has applied
    uint64_t version = 0;     // kAwait, kRead, kMerge: this one
    int64_t steps = 0;        // kPublish, kOfferAgain of models: that this rank has done
    bool is_last = false;     // kAdopt: of a finish(), when all that counts is in versions
    bool ends_part = false;   // kMean: this rank leaves the pairs after it
    bool is_whole = false;    // kAverage: nothing is left out by a codec
    bool may_end = false;     // kRead: members may go on elsewhere with this version
  };
  struct Action {
    uint64_t number = 0;
    Stage stage = Stage::kUpdate;
    double clip_norm = 0;    // kUpdate: the largest norm of the gradients; 0: any
    bool is_own = false;     // kCollectGradients, kUpdate: gradients that no other rank sees
    int64_t part = kNoPart;  // that of the rounds that gradients are for, or from
    uint64_t applied = 0;    // kPack: the version it is the state of
    double scale = 1;        // kLoadModel: of a model on a device, see StageResult
  };
  // The parts of the training, from `begin` on, that go in rounds or in pairs, by the versions at
  // which they begin.
  static std::vector<int64_t> PartsOf(Admission admission, const MethodChoice& choice,
                                      const MethodView& view, int64_t begin,
                                      int64_t end = kForever);
  // The obligation after an event. All empty: wait for the next event, until `deadline`.
  struct Ready {
    std::optional<Exchange> exchange;
    std::optional<Action> action;
    std::optional<Status> end;  // of the step or the finish()
    Time deadline = kNever;

    // The call has changed nothing.
    static Ready Refused(const std::string& why);
  };

  // Whether this trainer has all exchanges of the method, from step `begin` to `end`, where a part
  // ends.
  static Status Check(const MethodChoice& choice, const MethodView& view, int64_t begin = 0,
                      int64_t end = kForever);

  // REQUIRES: Check. `step`: the first one; mostly 0. `has_state`: of the adapter's optimizer.
  // `end`: it ends with the part that ends there, and what follows is the caller's affair.
  // `reduces`: where all wait for the gradients of all, the adapter exchanges them itself.
  // `vacates`: the adapter's tensors lie in memory of rounds, and leave it before that ends.
  Trainer(MethodChoice choice, const MethodView& view, int64_t step, bool has_state = false,
          int64_t end = kForever, bool reduces = false, bool vacates = false);

  // The rank has gradients for the next step. `unfit`: why they must not be used; empty: no reason.
  // kInvalidArgument at once: a finish() has halted, or a step is under way.
  Ready OnStep(const std::string& unfit, Time now);
  // Models become the mean of all, if those of any rank may differ. Not `strict`: the last part, if
  // it goes in rounds, ends without ranks that are missing for max_wait.
  Ready OnFinish(bool strict, Time now);
  // Nothing that this rank has learnt is with another rank, or in flight, afterwards: for a
  // checkpoint. In pairs its model becomes all that is its own; in rounds as a strict finish().
  Ready OnSettle(Time now);
  // The rank is about to compute the next step's gradients: applies the versions of gradients that
  // there are, and one that is due in a moment, if the rank skips ahead. Before the first step of
  // pairs it shows its model. It ends at once else.
  Ready OnPass(Time now);
  // Between two steps: looks whether a rank asks for the state of this one.
  Ready OnServe(Time now);
  // REQUIRES: this rank waits for it, so a halted step was taken up again.
  Ready OnExchangeEnd(const Status& status, const StageResult& result, Time now);
  // kInvalidArgument at once: `number` is not the action's under way.
  Ready OnAck(uint64_t number, bool done, Time now);
  // `missing`: the ranks that have not come to the exchange under way, as far as they are known.
  Ready OnTick(const std::vector<int32_t>& missing, Time now);

  // Updates done; in rounds of gradients those of versions, which are the same on all members.
  int64_t version() const { return version_; }
  int64_t step() const { return step_; }
  // Between two steps, for a checkpoint.
  struct Position {
    int64_t version = 0, step = 0;
    bool may_differ = false;   // since the last average of all this rank has done updates by itself
    int64_t begin = 0;         // of a trainer that goes on from here
    int64_t local = 0;         // deltas: steps since the last publish,
    bool is_anchored = false;  // and whether the replicated arrays are part of it
    // The driver adds these in rounds: how long this rank's own step takes (0: not known), the
    // version that its last contribution was for, and whether that version has waited for all.
    Time step_time = 0;
    int64_t published = 0;
    bool waited_for_all = false;
    Payload payload = Payload::kNone;         // of the next step
    bool catches_up = false;                  // OnPass may apply versions
    bool is_over = false;                     // the last part has ended for this rank
    int64_t planned = 0;                      // the version whose plan the next step goes by
    bool in_step = false, in_finish = false;  // which has not come to its end
    bool takes_gradients = true;              // the next step() does; else it goes on with its own
  };
  Position position() const;
  // kInvalidArgument: the rounds are at another version.
  Status Restore(const Position& position);
  bool IsIdle() const { return phase_ == Phase::kIdle; }
  // The part in rounds or pairs that the next step belongs to, or the one under way.
  int64_t part() const;

 private:
  enum class Phase : uint8_t { kIdle, kExchange, kAction, kHalted };
  // finish() that waits for all members, finish() that may go on without some, settle().
  enum class End : uint8_t { kStrict, kGoesOn, kSettle };

  Ready Begin(std::vector<Stage> stages, bool is_finish, Time now);
  Ready Enter(Time now);
  Ready Next(Time now);
  Ready GoOn(Stage meeting, Time now);
  Ready WaitOn() const;
  Time Wait() const;
  Ready Halt(const Status& why, bool is_to_begin);
  Ready EndWith(const Status& status);
  std::vector<Stage> StepStages(Time now) const;
  std::vector<Stage> FinishStages() const;
  Exchange ExchangeOf(Stage stage) const;
  MethodPlan Plan() const;
  Ready OnRoundsEnd(const Status& status, const StageResult& result, Time now);
  Ready OnPairsEnd(const Status& status, const StageResult& result, Time now);
  void Insert(const std::vector<Stage>& stages);
  void CatchUp(const StageResult& looked, Time now);
  void GiveUpPass();
  void BeginPart();
  void LeaveRounds();
  bool IsOver() const;
  void EndPart();
  void BeginHandOver();
  void HandOver(const StageResult& result);

  MethodChoice choice_;
  MethodView view_;
  struct Options {
    bool has_state, reduces, vacates;
    int64_t begin, end;  // the steps this trainer has begun with, and with which it ends
  };
  Options options_;
  int64_t version_ = 0, step_ = 0;
  // The part of the next step, if it goes in rounds or in pairs.
  std::optional<RoundPart> rounds_;
  std::optional<PairPart> pairs_;
  bool may_differ_ = false;
  Phase phase_ = Phase::kIdle;
  std::vector<Stage> stages_;  // of the step or finish() under way
  size_t at_ = 0;
  bool is_finish_ = false, is_pass_ = false;  // the call under way; neither: a step
  bool is_updated_ = false;                   // the step's UPDATE was done
  bool is_published_ = false;                 // its gradients were
  End end_ = End::kStrict;                    // of finish()
  // The other members were met when all that counts was in versions; this one has left rounds, at
  // their end.
  bool has_met_ = false, has_left_ = false;
  // Rounds of gradients that are followed by rounds of models.
  struct Handover {
    bool has_begun = false;  // in the call under way
    bool has_more = false;   // what no version has is a step of that call
    int64_t past = kNoPart;  // those rounds are open still
    uint64_t given = 0;      // the version whose state was left where the trainer ends
  };
  Handover handover_;
  Status late_ = Status::Ok();  // of a flush or a mean: its end, once the stages after it are done
  bool is_under_way_ = false;   // kHalted: the exchange goes on
  double scale_ = 1;            // of the last average
  std::string unfit_;
  uint64_t number_ = 0;  // of the last action
  struct Waiting {
    Time since = 0;       // this rank waits for the exchange
    Time limit = kNever;  // the max_wait of the rounds or pairs that this call has left
  };
  Waiting waiting_;
  PassClock pass_clock_;
  bool is_late_ = false;     // the version of the step under way was made before it was published
  Time due_until_ = kNever;  // kDue
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_TRAINER_H_
