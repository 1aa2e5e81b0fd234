// Where a training is, for a checkpoint.
#include "core/train/trainer.h"

namespace covey {

Trainer::Position Trainer::position() const {
  Position position{.version = version_, .step = step_, .may_differ = may_differ_, .begin = step_};
  position.payload = Plan().payload;
  position.is_over = IsOver();
  position.planned = rounds_.has_value() ? rounds_->from() : step_;
  position.in_step = phase_ != Phase::kIdle && !is_finish_ && !is_pass_;
  position.in_finish = phase_ != Phase::kIdle && is_finish_;
  // After a pass, and after a finish() of pairs that has halted, another step begins.
  const bool begins = phase_ == Phase::kIdle || is_pass_ ||
                      (is_finish_ && phase_ == Phase::kHalted && pairs_.has_value());
  position.takes_gradients = begins || (!is_finish_ && stages_[at_] == Stage::kCollectGradients);
  if (!rounds_.has_value()) return position;
  position.begin = rounds_->reached();
  position.catches_up = rounds_->CatchesUp();
  position.local = rounds_->local();
  position.is_anchored = rounds_->is_anchored();
  return position;
}

Trainer::Ready Trainer::OnSettle(Time now) {
  const bool is_other = phase_ == Phase::kExchange && stages_[at_] == Stage::kMean;
  if (is_other) return Ready::Refused("finish() is under way");
  const bool begins = phase_ == Phase::kIdle && pairs_.has_value();
  if (begins) {
    end_ = End::kSettle;
    // train-T17: nothing that a rank has learnt is with another one, or in flight, afterwards.
    return Begin(FinishStages(), true, now);
  }
  if (phase_ == Phase::kHalted && is_finish_ && pairs_.has_value()) {
    end_ = End::kSettle;
    return GoOn(Stage::kSettle, now);
  }
  const bool is_any = rounds_.has_value() || phase_ != Phase::kIdle;
  if (!is_any) return EndWith(Status::Ok());
  const Ready ready = OnFinish(true, now);
  end_ = End::kSettle;
  return ready;
}

// A finish(), or a settle(), that has halted. Ranks of pairs that wait in vain for one of them may
// want the other one.
Trainer::Ready Trainer::GoOn(Stage meeting, Time now) {
  if (IsMeeting(stages_[at_])) stages_[at_] = meeting;
  return Enter(now);
}

Status Trainer::Restore(const Position& position) {
  if (rounds_.has_value() && rounds_->reached() != position.begin)
    return Status::InvalidArgument("the rounds of " + choice_.At(rounds_->from()).OwnText() +
                                   " are at version " + std::to_string(rounds_->reached()) +
                                   ", and not at " + std::to_string(position.begin) +
                                   ": open a trainer that begins there instead");
  // train-T26: version() counts on from that of the rounds; versions of deltas count exchanges.
  const bool counts = rounds_.has_value() && rounds_->payload() != Payload::kDelta;
  if (counts && position.version != position.begin + position.local)
    return Status::InvalidArgument(
        "a position of version " + std::to_string(position.version) + " in rounds of " +
        choice_.At(rounds_->from()).OwnText() + " that begin at " + std::to_string(position.begin) +
        ", with " + std::to_string(position.local) +
        " steps since, is of two trainings: restore one that a trainer has given");
  version_ = position.version;
  step_ = position.step;
  may_differ_ = position.may_differ;
  if (rounds_.has_value()) rounds_->Restore(position.local, position.is_anchored);
  BeginPart();
  return Status::Ok();
}

}  // namespace covey
