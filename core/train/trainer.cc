#include "core/train/trainer.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/method/value_syntax.h"
#include "core/plan/topology.h"

namespace covey {
namespace {

// Of max_wait=auto: a step of these methods waits for all, so its own length says nothing.
constexpr Time kAutoWait = 60 * kSecond;

bool IsExchange(Stage stage) { return stage <= Stage::kMix; }

Topology TopologyOf(const MethodNeighbors& neighbors, int32_t size) {
  return {.kind = neighbors.topology, .size = size, .seed = neighbors.seed, .matrix = {}};
}

Time WaitOf(const MethodPlan& plan) {
  if (plan.admission != Admission::kNeighbors) return kNever;
  const Duration& wait = plan.neighbors.max_wait;
  if (wait.kind == Duration::Kind::kOff) return kNever;
  return wait.kind == Duration::Kind::kAuto ? kAutoWait : wait.time;
}

}  // namespace

Status Trainer::Check(const MethodChoice& choice, const MethodView& view) {
  for (int64_t version = 0; version < kForever; version = choice.Until(version)) {
    const MethodPlan plan = choice.Plan(view, version);
    const MethodChoice& here = choice.At(version);
    const std::string method = "the method " + here.OwnText();
    if (plan.admission == Admission::kRounds || plan.admission == Admission::kPairs)
      return Status::Unsupported(
          method +
          " does not wait for all ranks, which covey_trainer cannot do yet: it has "
          "allreduce, local and dpsgd without codec= and local's max_wait=. covey.torch "
          "has every method");
    if (!here.codec.empty())
      return Status::Unsupported(method +
                                 " has a codec, which covey_trainer cannot use yet: leave "
                                 "out codec=. covey.torch has codecs");
    if (plan.admission == Admission::kNeighbors)
      RETURN_IF_ERROR(covey::Check(TopologyOf(plan.neighbors, view.size)));
  }
  return Status::Ok();
}

Trainer::Trainer(MethodChoice choice, const MethodView& view, int64_t step)
    : choice_(std::move(choice)), view_(view), version_(step), step_(step) {}

std::vector<Stage> Trainer::StagesOf(const MethodPlan& plan) {
  if (plan.payload == Payload::kNone) return {Stage::kCollectGradients, Stage::kUpdate};
  if (plan.payload == Payload::kGradients)
    return {Stage::kCollectGradients, Stage::kReduce, Stage::kUpdate};
  const bool mixes = plan.admission == Admission::kNeighbors;
  const Stage exchange = mixes ? Stage::kMix : Stage::kAverage;
  if (mixes && !plan.neighbors.adapts_first)
    return {Stage::kCollectGradients, Stage::kCollectModel, exchange, Stage::kLoadModel,
            Stage::kUpdate};
  return {Stage::kCollectGradients, Stage::kUpdate, Stage::kCollectModel, exchange,
          Stage::kLoadModel};
}

Trainer::Ready Trainer::OnStep(const std::string& unfit, Time now) {
  const bool is_halted = phase_ == Phase::kHalted;
  if (is_halted && is_finish_)
    return Refuse("finish() has not come to its end: call it again before the next step");
  if (!is_halted && phase_ != Phase::kIdle) return Refuse("a step is under way");
  if (is_halted) return Enter(now);
  const MethodPlan plan = choice_.Plan(view_, step_);
  // Where the others do not see this rank's gradients, the rank itself refuses them.
  if (!unfit.empty() && plan.payload != Payload::kGradients)
    return EndWith(Status(StatusCode::kNotFinite, unfit));
  unfit_ = unfit;
  return Begin(StagesOf(plan), false, now);
}

Trainer::Ready Trainer::OnFinish(Time now) {
  const bool is_halted = phase_ == Phase::kHalted;
  if (is_halted && !is_finish_)
    return Refuse("step " + std::to_string(step_) +
                  " has not come to its end: call step() again before finish()");
  if (!is_halted && phase_ != Phase::kIdle) return Refuse("a step is under way");
  return is_halted ? Enter(now) : Begin({Stage::kAgree}, true, now);
}

Trainer::Ready Trainer::Begin(std::vector<Stage> stages, bool is_finish, Time now) {
  stages_ = std::move(stages);
  at_ = 0;
  is_finish_ = is_finish;
  is_updated_ = false;
  is_under_way_ = false;
  return Enter(now);
}

Trainer::Ready Trainer::Enter(Time now) {
  Ready ready;
  const Stage stage = stages_[at_];
  if (IsExchange(stage)) {
    phase_ = Phase::kExchange;
    since_ = now;
    // train-T1: an exchange that was waited for in vain goes on: it is not begun twice.
    if (!std::exchange(is_under_way_, true)) ready.exchange = ExchangeOf(stage);
    const Time wait = WaitOf(choice_.Plan(view_, step_));
    ready.deadline = wait == kNever ? kNever : now + wait;
  } else {
    phase_ = Phase::kAction;
    const bool clips = stage == Stage::kUpdate;
    ready.action = Action{.number = ++number_,
                          .stage = stage,
                          .clip_norm = clips ? NormOf(choice_.At(step_).clip_norm) : 0};
  }
  return ready;
}

Trainer::Exchange Trainer::ExchangeOf(Stage stage) const {
  Exchange exchange{
      .stage = stage, .step = step_, .unfit = {}, .row = {}, .may_differ = may_differ_};
  if (stage == Stage::kReduce) exchange.unfit = unfit_;
  if (stage == Stage::kMix) {
    const MethodNeighbors neighbors = choice_.Plan(view_, step_).neighbors;
    exchange.row = RowOf(TopologyOf(neighbors, view_.size), neighbors.round, ToInt(view_.rank));
  }
  return exchange;
}

Trainer::Ready Trainer::OnExchangeEnd(const Status& status, const Agreed& agreed, Time now) {
  CHECK(phase_ == Phase::kExchange, "an exchange ends while the trainer waits for it");
  is_under_way_ = false;
  // train-T3: a step whose update was done goes on with its exchange, one without is dropped.
  if (!status.ok()) return is_updated_ || is_finish_ ? Halt(status, true) : EndWith(status);
  const Stage stage = stages_[at_];
  if (stage == Stage::kAgree) {
    // train-T4: all go on with the step of the member that has done most.
    step_ = agreed.step;
    if (agreed.may_differ)
      stages_.insert(stages_.end(), {Stage::kCollectModel, Stage::kAverage, Stage::kLoadModel});
  }
  return Next(now);
}

Trainer::Ready Trainer::OnAck(uint64_t number, bool done, Time now) {
  // train-T2: an update counts once: when its own number is acknowledged.
  if (phase_ != Phase::kAction || number != number_)
    return Refuse("action " + std::to_string(number) +
                  " is not under way: each is acknowledged once");
  if (!done)
    return Halt(
        Status::Aborted("the adapter has not done an action of step " + std::to_string(step_)),
        true);
  const Stage stage = stages_[at_];
  if (stage == Stage::kUpdate) {
    ++version_;
    is_updated_ = true;
    may_differ_ |= choice_.Plan(view_, step_).payload != Payload::kGradients;
  }
  const bool is_of_all = at_ > 0 && stages_[at_ - 1] == Stage::kAverage;
  if (stage == Stage::kLoadModel && is_of_all) may_differ_ = false;
  return Next(now);
}

Trainer::Ready Trainer::OnTick(const std::string& missing, Time now) {
  const Time wait = WaitOf(choice_.Plan(view_, step_));
  if (phase_ != Phase::kExchange || wait == kNever || now - since_ < wait) {
    Ready ready;
    if (phase_ == Phase::kExchange && wait != kNever) ready.deadline = since_ + wait;
    return ready;
  }
  return Halt(
      Status::Timeout(std::string(is_finish_ ? "finish()" : "step " + std::to_string(step_)) +
                      " has waited " + std::to_string(wait / kMillisecond) + " ms (max_wait) for " +
                      missing + ": call it again to wait on"),
      false);
}

Trainer::Ready Trainer::Next(Time now) {
  if (++at_ < stages_.size()) return Enter(now);
  if (!is_finish_) ++step_;
  return EndWith(Status::Ok());
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

Trainer::Ready Trainer::Refuse(const std::string& why) {
  Ready ready;
  ready.end = Status::InvalidArgument(why);
  return ready;
}

void Trainer::Restore(int64_t version, int64_t step, bool may_differ) {
  version_ = version;
  step_ = step;
  may_differ_ = may_differ;
}

}  // namespace covey
