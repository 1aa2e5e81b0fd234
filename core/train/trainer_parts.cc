// From one part of a training to the next.
#include "core/train/trainer.h"

namespace covey {

int64_t Trainer::part() const {
  if (rounds_.has_value()) return rounds_->from();
  return pairs_.has_value() ? pairs_->from() : kNoPart;
}

// If the next step is the first one of rounds or pairs.
void Trainer::BeginPart() {
  if (view_.size == 1 || rounds_.has_value() || pairs_.has_value()) return;
  int64_t from = begin_;
  while (choice_.Until(from) <= step_) from = choice_.Until(from);
  const MethodPlan plan = choice_.Plan(view_, from);
  if (plan.admission == Admission::kPairs) pairs_.emplace(from, choice_.Until(from));
  if (plan.admission != Admission::kRounds) return;
  rounds_.emplace(plan, from, choice_.Until(from), step_);
  version_ = step_;
}

void Trainer::LeaveRounds() {
  // train-T7: all members leave with the same version, and go on with the step after it.
  step_ = version_ = rounds_->is_local() ? rounds_->left_at() : rounds_->reached();
  // A member that is in finish() has not seen with which version they were over.
  if (rounds_->is_local()) {
    Insert(StateStages());
    Insert({Stage::kAgree});
  }
  has_left_ = true;
  may_differ_ = false;
  rounds_.reset();
}

}  // namespace covey
