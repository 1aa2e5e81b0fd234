// Where a training is, for a checkpoint.
#include "core/train/trainer.h"

namespace covey {

Trainer::Position Trainer::position() const {
  Position position{.version = version_, .step = step_, .may_differ = may_differ_, .begin = step_};
  if (!rounds_.has_value()) return position;
  position.begin = rounds_->reached();
  position.local = rounds_->local();
  position.is_anchored = rounds_->is_anchored();
  return position;
}

Status Trainer::Restore(const Position& position) {
  if (rounds_.has_value() && rounds_->reached() != position.begin)
    return Status::InvalidArgument("the rounds of " + choice_.At(rounds_->from()).OwnText() +
                                   " are at version " + std::to_string(rounds_->reached()) +
                                   ", and not at " + std::to_string(position.begin) +
                                   ": open a trainer that begins there instead");
  version_ = position.version;
  step_ = position.step;
  may_differ_ = position.may_differ;
  if (rounds_.has_value()) rounds_->Restore(position.local, position.is_anchored);
  BeginPart();
  return Status::Ok();
}

}  // namespace covey
