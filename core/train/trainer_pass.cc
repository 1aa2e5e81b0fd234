// A rank that is about to compute gradients: the versions that others have made meanwhile, and in
// pairs what others see of it before its first step.
#include "core/train/trainer.h"

namespace covey {

Trainer::Ready Trainer::OnPass(Time now) {
  const bool goes_on = is_pass_ && (phase_ == Phase::kHalted || phase_ == Phase::kExchange);
  if (phase_ != Phase::kIdle && !goes_on)
    return Ready::Refused(
        "a step, or finish(), has not come to its end: call it again before a pass begins");
  if (goes_on) return phase_ == Phase::kHalted ? Enter(now) : WaitOn();
  if (pairs_.has_value() && !pairs_->has_begun()) {
    const Ready ready = Begin(pairs_->BeginStages(), false, now);
    is_pass_ = true;
    return ready;
  }
  if (!rounds_.has_value() || !rounds_->CatchesUp()) {
    pass_clock_.Begin(now);
    return EndWith(Status::Ok());
  }
  const Ready ready = Begin({Stage::kLook}, false, now);
  is_pass_ = true;
  return ready;
}

// train-T16: the step that comes, or finish(), applies the versions that this pass has not.
void Trainer::GiveUpPass() {
  if (!is_pass_ || (phase_ != Phase::kHalted && phase_ != Phase::kExchange)) return;
  phase_ = Phase::kIdle;
  is_under_way_ = false;
  handover_.has_begun = false;
  stages_.clear();
}

Trainer::Ready Trainer::OnServe(Time now) {
  if (phase_ != Phase::kIdle) return Ready::Refused("a step, or finish(), has not come to its end");
  if (!rounds_.has_value()) return EndWith(Status::Ok());
  const Ready ready = Begin({Stage::kServe}, false, now);
  is_pass_ = true;
  return ready;
}

// It knows now which versions there are. A version that is due in a moment is one of them.
void Trainer::CatchUp(const StageResult& looked, Time now) {
  const bool is_last = rounds_->IsLast(looked.executed);
  const Time patience = is_last ? 0 : pass_clock_.Patience(looked.executed + 1, now);
  due_until_ = now + patience;
  Insert(patience > 0 ? std::vector<Stage>{Stage::kDue}
                      : rounds_->Follow(Stage::kDue, Status::Ok(), looked));
}

}  // namespace covey
