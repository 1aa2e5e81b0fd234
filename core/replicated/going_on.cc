#include "core/replicated/going_on.h"

namespace covey {
namespace {

// At most this part of max_wait counts between two looks of a waiter: it was stopped.
constexpr Time kLooks = 4;

}  // namespace

bool GoingOn::Drops(bool is_behind) {
  const bool has_waited = is_held_back_ && is_over_;
  // replicated-W27: a rank that the others went on without makes no version alone.
  is_held_back_ = is_behind;
  waits_ = false;
  // partial-W8d: it has waited for the others for max_wait, and does not for each further step.
  if (!is_behind || !has_waited) {
    waited_ = 0;
    is_over_ = false;
  }
  if (is_behind) {
    ++dropped_;
  } else {
    asks_ = wanted_ = 0;
    state_ = {};
  }
  return is_behind;
}

Time GoingOn::Wait(bool is_behind, bool are_any_there, Time max_wait, Time away, Time now) {
  if (!is_behind || !waits_ || is_over_) return kNever;
  const Time look = max_wait / kLooks;
  waited_ += std::min(away, look);
  // partial-W8d: without a member that may train on there is nothing to wait for.
  is_over_ = !are_any_there || (max_wait < kNever && waited_ >= max_wait);
  if (is_over_ || max_wait == kNever) return kNever;
  return now + std::min(look, max_wait - waited_) + 1;
}

void GoingOn::OnLeave(const Progress& progress, uint64_t settled) {
  if (settled == 0 || (settled_ > 0 && Progress::IsUpToDate(progress, left_))) return;
  left_ = progress;
  settled_ = settled;
}

void GoingOn::Adopt(ReplicatedLog* log) const {
  const Progress& mine = log->progress();
  // replicated-W26: those that have left take what is settled along for no other rank.
  if (settled_ == 0 || left_.executed != mine.executed || left_ == mine ||
      !Progress::IsUpToDate(mine, left_))
    return;
  log->AcceptNoOp(left_.accepted_term, left_.attempt, settled_);
}

}  // namespace covey
