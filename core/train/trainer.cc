#include "core/train/trainer.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/method/value_syntax.h"
#include "core/plan/topology.h"

namespace covey {
Status Trainer::Check(const MethodChoice& choice, const MethodView& view, int64_t begin,
                      int64_t end) {
  int64_t last = begin;
  while (last < end) last = choice.Until(last);
  if (last != end || begin >= end)
    return Status::InvalidArgument("a trainer that begins at step " + std::to_string(begin) +
                                   " of " + choice.Text() + " does not end at step " +
                                   std::to_string(end) + ": no part of the method ends there");
  for (int64_t version = 0; version < end; version = choice.Until(version)) {
    const MethodPlan plan = choice.Plan(view, version);
    const MethodChoice& here = choice.At(version);
    if (plan.admission == Admission::kNeighbors)
      RETURN_IF_ERROR(covey::Check(TopologyOf(plan.neighbors, view)));
    if (plan.admission != Admission::kPairs || view.size == 1) continue;
    const Status known = CheckPairs(TopologyOf(plan.pairs, view));
    if (!known.ok())
      return Status::InvalidArgument("the method " + here.OwnText() + ": " + known.message());
  }
  return Status::Ok();
}

Trainer::Trainer(MethodChoice choice, const MethodView& view, int64_t step, bool has_state,
                 int64_t end, bool reduces, bool vacates)
    : choice_(std::move(choice)),
      view_(view),
      options_{.has_state = has_state,
               .reduces = reduces,
               .vacates = vacates,
               .begin = step,
               .end = end},
      version_(step),
      step_(step) {
  BeginPart();
}

// A rank alone exchanges nothing.
MethodPlan Trainer::Plan() const {
  return view_.size == 1 ? MethodPlan{}
                         : choice_.Plan(view_, rounds_.has_value() ? rounds_->from() : step_);
}

std::vector<Stage> Trainer::StepStages(Time now) const {
  if (rounds_.has_value()) return rounds_->StepStages(now);
  if (pairs_.has_value()) return pairs_->StepStages();
  const MethodPlan plan = Plan();
  if (plan.payload == Payload::kNone) return {Stage::kCollectGradients, Stage::kUpdate};
  if (plan.payload == Payload::kGradients && options_.reduces) return {Stage::kUpdate};
  if (plan.payload == Payload::kGradients)
    return {Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate};
  const bool mixes = plan.admission == Admission::kNeighbors;
  const Stage exchange = mixes ? Stage::kMix : Stage::kAverage;
  if (mixes && !plan.neighbors.adapts_first)
    return {Stage::kCollectGradients, Stage::kCollectModel, exchange, Stage::kLoadModel,
            Stage::kUpdate};
  std::vector<Stage> stages{Stage::kCollectGradients, Stage::kUpdate, Stage::kCollectModel,
                            exchange, Stage::kLoadModel};
  const bool is_within = step_ + 1 == options_.end || !options_.has_state;
  const std::vector<Stage> state = is_within ? std::vector<Stage>{} : StateStages();
  // train-T15: what optimizers keep becomes equal with the models.
  if (step_ + 1 >= choice_.Until(step_)) stages.insert(stages.end(), state.begin(), state.end());
  return stages;
}

std::vector<Stage> Trainer::FinishStages() const {
  const bool settles = end_ == End::kSettle;
  if (rounds_.has_value()) return rounds_->FinishStages();
  // train-T17: a checkpoint of pairs is of each rank's own model.
  if (pairs_.has_value()) return settles ? pairs_->SettleStages() : pairs_->FinishStages();
  // train-T17: settle() changes nothing where all wait for the gradients or models of all.
  if (settles) return {};
  return {Stage::kAgree};
}

Trainer::Ready Trainer::OnStep(const std::string& unfit, Time now) {
  GiveUpPass();
  // In pairs no rank waits for one that is missing in finish(): it may train on.
  if (phase_ == Phase::kHalted && is_finish_ && pairs_.has_value()) phase_ = Phase::kIdle;
  const bool is_halted = phase_ == Phase::kHalted;
  if (is_halted && is_finish_)
    return Ready::Refused("finish() has not come to its end: call it again before the next step");
  if (phase_ == Phase::kExchange && !is_finish_ && !is_pass_) return WaitOn();
  if (!is_halted && phase_ != Phase::kIdle) return Ready::Refused("a step is under way");
  // train-T3: gradients that were not taken are not this step's: it takes those of this call.
  const bool takes_anew = is_halted && stages_[at_] == Stage::kCollectGradients;
  if (is_halted && !takes_anew) return Enter(now);
  if (!takes_anew && part() == kNoPart && step_ >= options_.end)
    return Ready::Refused("this trainer has ended with step " + std::to_string(options_.end));
  pass_clock_.End(now);
  const MethodPlan plan = Plan();
  // Where the others do not see this rank's gradients, the rank itself refuses them.
  if (!unfit.empty() && plan.payload != Payload::kGradients)
    return EndWith(Status(StatusCode::kNotFinite, unfit));
  unfit_ = unfit;
  if (takes_anew) return Enter(now);
  end_ = End::kStrict;
  return Begin(StepStages(now), false, now);
}

Trainer::Ready Trainer::OnFinish(bool strict, Time now) {
  GiveUpPass();
  const bool is_halted = phase_ == Phase::kHalted;
  if (is_halted && !is_finish_)
    return Ready::Refused("step " + std::to_string(step_) +
                          " has not come to its end: call step() again before finish()");
  const bool waits = phase_ == Phase::kExchange && is_finish_;
  if (!is_halted && !waits && phase_ != Phase::kIdle) return Ready::Refused("a step is under way");
  end_ = strict ? End::kStrict : End::kGoesOn;
  if (waits) return WaitOn();
  if (is_halted) return GoOn(Stage::kMean, now);
  unfit_.clear();
  if (rounds_.has_value() && rounds_->HasEnded()) rounds_->NoteOver();
  return Begin(FinishStages(), true, now);
}

Trainer::Ready Trainer::Begin(std::vector<Stage> stages, bool is_finish, Time now) {
  stages_ = std::move(stages);
  at_ = 0;
  is_finish_ = is_finish;
  is_pass_ = false;
  is_updated_ = is_published_ = has_met_ = has_left_ = false;
  handover_.has_begun = handover_.has_more = false;
  is_under_way_ = false;
  waiting_.limit = kNever;
  return Enter(now);
}

Trainer::Ready Trainer::Enter(Time now) {
  Ready ready;
  const Stage stage = stages_[at_];
  if ((stage == Stage::kFlush || IsMeeting(stage)) && !late_.ok())
    return Halt(std::exchange(late_, Status::Ok()), true);
  if (IsExchange(stage)) {
    phase_ = Phase::kExchange;
    waiting_.since = now;
    // train-T1: an exchange that was waited for in vain goes on: it is not begun twice.
    if (!std::exchange(is_under_way_, true)) ready.exchange = ExchangeOf(stage);
    const Time wait = Wait();
    ready.deadline = wait == kNever ? kNever : now + wait;
    if (stage == Stage::kDue) ready.deadline = due_until_;
  } else {
    phase_ = Phase::kAction;
    const bool clips = stage == Stage::kUpdate;
    const int64_t at = rounds_.has_value() ? rounds_->from() : step_;
    ready.action = Action{.number = ++number_,
                          .stage = stage,
                          .clip_norm = clips ? NormOf(choice_.At(at).clip_norm) : 0,
                          .is_own = Plan().payload != Payload::kGradients && !handover_.has_more,
                          .part = part(),
                          .applied = rounds_.has_value() ? rounds_->applied() : 0,
                          .scale = scale_};
  }
  return ready;
}

Trainer::Exchange Trainer::ExchangeOf(Stage stage) const {
  Exchange exchange{.stage = stage, .step = step_, .row = {}, .may_differ = may_differ_};
  const bool is_given =
      stage == Stage::kReduce || (stage == Stage::kPublish && !handover_.has_more);
  if (is_given || stage == Stage::kGoOn || stage == Stage::kSeenMean) exchange.unfit = unfit_;
  exchange.part = stage == Stage::kRelease ? handover_.past : part();
  exchange.ends_part = stage == Stage::kMean && !is_finish_;
  if (rounds_.has_value()) {
    exchange.applied = rounds_->applied();
    exchange.is_last = rounds_->is_finishing();
    exchange.version = rounds_->applied() + 1;
    exchange.may_end = rounds_->MayEndWith(exchange.version);
    if (stage == Stage::kAwait) exchange.version = rounds_->awaited();
    if (stage == Stage::kDue) exchange.version = rounds_->executed() + 1;
    if (stage == Stage::kMerge) exchange.version = rounds_->merged();
    exchange.steps = rounds_->payload() == Payload::kDelta ? version_ : rounds_->steps();
  }
  // train-T14: where a part ends nothing is left out of a model.
  exchange.is_whole = is_finish_ || step_ + 1 >= choice_.Until(step_);
  if (stage == Stage::kMix) {
    const MethodNeighbors neighbors = Plan().neighbors;
    exchange.row = RowOf(TopologyOf(neighbors, view_), neighbors.round, ToInt(view_.rank));
  }
  return exchange;
}

Trainer::Ready Trainer::OnExchangeEnd(const Status& status, const StageResult& result, Time now) {
  CHECK(phase_ == Phase::kExchange, "an exchange ends while the trainer waits for it");
  is_under_way_ = false;
  scale_ = result.scale;
  const Stage stage = stages_[at_];
  if (IsOfRounds(stage)) return OnRoundsEnd(status, result, now);
  if (IsOfPairs(stage)) return OnPairsEnd(status, result, now);
  if (!status.ok() && stage == Stage::kAverageState) --at_;  // the state is listed anew
  // train-T3: a step whose update was done goes on with its exchange, one without is dropped.
  if (!status.ok()) return is_updated_ || is_finish_ ? Halt(status, true) : EndWith(status);
  if (stage == Stage::kAgree) {
    // train-T4: all go on with the step of the member that has done most.
    step_ = result.step;
    if (has_left_) version_ = step_;
    if (result.may_differ) Insert({Stage::kCollectModel, Stage::kAverage, Stage::kLoadModel});
  }
  return Next(now);
}

Trainer::Ready Trainer::OnRoundsEnd(const Status& status, const StageResult& result, Time now) {
  const Stage stage = stages_[at_];
  if (stage == Stage::kRelease) {
    handover_.past = kNoPart;
    return Next(now);
  }
  Insert(rounds_->Follow(stage, status, result));
  if (result.ended_at > 0) pass_clock_.See(result.executed, result.ended_at);
  if (stage == Stage::kPublish) is_late_ = result.version <= result.executed;
  const bool is_made = stage == Stage::kAwait && status.ok() && !is_late_;
  if (is_made) pass_clock_.See(rounds_->awaited(), now);
  if (stage == Stage::kLook) CatchUp(result, now);
  if (!rounds_->is_local()) version_ = rounds_->reached();
  // train-T25: with what others have done this rank is as far as they are.
  const bool is_delta = rounds_->payload() == Payload::kDelta;
  const int64_t reached = rounds_->reached();
  if (is_delta) version_ = std::max(version_, rounds_->own()->Within(result.steps, reached));
  // train-T25: the steps that finish() drops are not counted.
  if (stage == Stage::kAdopt && result.steps > 0) rounds_->own()->OnMet(version_ = result.steps);
  if (stage == Stage::kPublish && status.ok()) {
    is_published_ = true;
    if (unfit_.empty() || !handover_.has_more) unfit_ = result.unfit;
  }
  if (stage == Stage::kMerge && status.ok()) may_differ_ = result.may_differ;
  // train-T18: no rank needs what it was in before.
  const bool is_last_in = stage == Stage::kMerge && status.ok() && result.has_all;
  if (is_last_in && handover_.past != kNoPart) Insert({Stage::kRelease});
  const bool is_met = result.event == StageResult::Event::kMade;
  if (stage == Stage::kMeet) has_met_ = status.ok() && is_met;
  if (stage == Stage::kLeave) LeaveRounds();
  if (stage == Stage::kHandOver && status.ok()) HandOver(result);
  if (status.ok()) return Next(now);
  const bool ends_wait = stage == Stage::kFlush || stage == Stage::kMeet;
  const bool may_go_on = end_ == End::kGoesOn && rounds_->MayGoOnWithout();
  if (ends_wait && may_go_on && status.code() == StatusCode::kTimeout) {
    unfit_ = status.message();
    stages_.resize(at_ + 1);
    Insert(rounds_->GoOnStages());
    return Next(now);
  }
  if (stage == Stage::kFlush) {
    late_ = status;
    return Next(now);
  }
  // train-T5: what was published is in a version, or will be: it is not published again.
  const bool goes_on = is_updated_ || is_published_ || is_finish_ || handover_.has_begun;
  return goes_on ? Halt(status, true) : EndWith(status);
}

// They follow the stage that has ended.
void Trainer::Insert(const std::vector<Stage>& stages) {
  const size_t at = std::min(at_ + 1, stages_.size());
  stages_.insert(stages_.begin() + static_cast<ptrdiff_t>(at), stages.begin(), stages.end());
}

Trainer::Ready Trainer::OnAck(uint64_t number, bool done, Time now) {
  // train-T2: an update counts once: when its own number is acknowledged.
  if (phase_ != Phase::kAction || number != number_)
    return Ready::Refused("action " + std::to_string(number) +
                          " is not under way: each is acknowledged once");
  // train-T3: the adapter's own exchange of gradients, or the update with them, has failed.
  const bool is_reduced = part() == kNoPart && Plan().payload == Payload::kGradients;
  if (!done && !is_finish_ && stages_[at_] == Stage::kUpdate && options_.reduces && is_reduced)
    return EndWith(Status::Aborted("the adapter has not done step " + std::to_string(step_)));
  if (!done)
    return Halt(
        Status::Aborted("the adapter has not done an action of step " + std::to_string(step_)),
        true);
  const Stage stage = stages_[at_];
  const bool is_of_rank = !rounds_.has_value() || rounds_->is_local();
  if (rounds_.has_value()) Insert(rounds_->OnDone(stage));
  if (!is_of_rank) version_ = rounds_->reached();
  if (is_of_rank && stage == Stage::kUpdate) {
    // train-T25: the others may have done more.
    const bool is_delta = rounds_.has_value() && rounds_->payload() == Payload::kDelta;
    const int64_t own = is_delta ? rounds_->own()->done() : version_ + 1;
    version_ = is_delta ? std::max(version_, rounds_->own()->Within(own, rounds_->reached())) : own;
    is_updated_ = true;
    may_differ_ |= view_.size > 1 && Plan().payload != Payload::kGradients;
  }
  const Stage before = stages_[at_ > 0 ? at_ - 1 : 0];
  const bool is_of_all = before == Stage::kAverage || (before == Stage::kMean && late_.ok()) ||
                         (rounds_.has_value() && rounds_->is_finishing());
  if (stage == Stage::kLoadModel && is_of_all) may_differ_ = false;
  return Next(now);
}

Trainer::Ready Trainer::OnTick(const std::vector<int32_t>& missing, Time now) {
  if (phase_ == Phase::kExchange && stages_[at_] == Stage::kDue && now >= due_until_) {
    StageResult not_made;
    not_made.executed = rounds_->executed();
    return OnExchangeEnd(Status::Ok(), not_made, now);
  }
  const Time wait = Wait();
  if (wait == kNever || now - waiting_.since < wait) return WaitOn();
  std::string names;
  for (const int32_t rank : missing)
    names += (names.empty() ? "rank " : ", ") + std::to_string(rank);
  return Halt(Status::Timeout(
                  std::string(is_finish_ ? "finish()" : "step " + std::to_string(step_)) +
                      " has waited " + std::to_string(wait / kMillisecond) + " ms (max_wait) for " +
                      (names.empty() ? "a rank that is not known yet" : names) +
                      ": nothing is lost, and the same call waits on",
                  missing.empty() ? kNoRank : Rank{missing.front()}),
              false);
}

// For the exchange under way, if there is one.
Trainer::Ready Trainer::WaitOn() const {
  Ready ready;
  const Time wait = Wait();
  if (wait != kNever) ready.deadline = waiting_.since + wait;
  if (phase_ == Phase::kExchange && stages_[at_] == Stage::kDue) ready.deadline = due_until_;
  return ready;
}

Trainer::Ready Trainer::Next(Time now) {
  EndPart();
  if (at_ < stages_.size()) return Enter(now);
  if ((!is_finish_ && !is_pass_ && !has_left_) || handover_.has_more) ++step_;
  if (is_pass_) pass_clock_.Begin(now);
  if (rounds_.has_value()) rounds_->OnEnd(now);
  // train-T4: by rounds of models a rank is as far as those that it has merged with.
  if (rounds_.has_value() && rounds_->payload() == Payload::kModel && !is_pass_)
    version_ = rounds_->reached() + rounds_->local();
  BeginPart();
  const bool is_unfit = is_published_ && !is_finish_ && !unfit_.empty();
  return EndWith(is_unfit ? Status(StatusCode::kNotFinite, unfit_) : Status::Ok());
}

Trainer::Ready Trainer::Halt(const Status& why, bool is_to_begin) {
  phase_ = Phase::kHalted;
  if (is_to_begin) is_under_way_ = false;
  Ready ready;
  ready.end = why;
  return ready;
}

Trainer::Ready Trainer::EndWith(const Status& status) {
  phase_ = Phase::kIdle;
  stages_.clear();
  Ready ready;
  ready.end = status;
  return ready;
}

Trainer::Ready Trainer::Ready::Refused(const std::string& why) {
  Ready ready;
  ready.end = Status::InvalidArgument(why);
  return ready;
}

}  // namespace covey
