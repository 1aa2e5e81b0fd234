// Reading another member's model, and leaving a training.
#include <utility>

#include "core/engine/trainer_driver.h"
#include "core/engine/trainer_driver_lock.h"
#include "core/engine/trainer_pairs.h"
#include "core/engine/trainer_rounds.h"
#include "core/engine/trainer_window.h"

namespace covey {

std::unique_ptr<TrainerWindow> TrainerDriver::LeaveAll() {
  for (const auto& [from, rounds] : rounds_) rounds->Leave();
  for (const auto& [from, pairs] : pairs_) pairs->Leave();
  if (window_ != nullptr) window_->Leave();
  return std::move(window_);
}

Status TrainerDriver::PeekModel(int32_t member, std::span<std::byte> model, Seen* seen) {
  const auto pairs = pairs_.find(trainer_.part());
  const TrainerRounds* rounds = RoundsOf(trainer_.part());
  const bool is_of_all = window_ != nullptr && IsOfAll(trainer_);
  const bool has_models = rounds != nullptr && rounds->has_models();
  if (pairs == pairs_.end() && !has_models && !is_of_all)
    return Status::Unsupported(
        "a trainer shows the models of others in pairs, in rounds of models, and in local steps");
  if (seen->state != WindowState::kWhole) return Status::Ok();
  if (is_of_all) {
    seen->state = window_->Look(member, model, &seen->version);
    if (seen->state == WindowState::kChanging) window_->Want(member);
    return Status::Ok();
  }
  bool is_whole = false;
  if (has_models) {
    RoundsPort::Seen published;
    RETURN_IF_ERROR(rounds->Peek(member, model, &published));
    seen->step = published.step;
    seen->is_superseded = published.superseded;
    is_whole = published.whole;
  } else {
    const PairsPort::Seen handed_in = pairs->second->Peek(member, model.data());
    seen->state = handed_in.state;
    seen->is_superseded = window_ != nullptr ? window_->IsBehind(member) : handed_in.is_behind;
    if (window_ == nullptr) seen->version = handed_in.version;
    return Status::Ok();
  }
  if (!is_whole) seen->state = WindowState::kChanging;
  if (has_models && seen->step == 0) seen->state = WindowState::kNothing;
  return Status::Ok();
}

Status TrainerDriver::ShowModel(std::span<const void* const> parameters) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!trainer_.IsIdle())
    return Status::InvalidArgument("a model is shown between two steps, not within one");
  if (window_ == nullptr || !window_->takes_copies() || !IsOfAll(trainer_)) return Status::Ok();
  window_->HideCopy();
  layout_.CopyIn(parameters, model());
  window_->ShowCopy(trainer_.version());
  return Status::Ok();
}

void TrainerDriver::Hide() {
  if (window_ != nullptr) window_->Hide();
}

}  // namespace covey
