// Reading another member's model, and leaving a training.
#include <utility>

#include "core/engine/far_window.h"
#include "core/engine/trainer_driver.h"
#include "core/engine/trainer_driver_lock.h"
#include "core/engine/trainer_pairs.h"
#include "core/engine/trainer_rounds.h"
#include "core/engine/trainer_window.h"

namespace covey {
namespace {

// The model that a member has published last; `asked`: by its answers, in the rounds that begin at
// version `part`; null: it is read.
Status PeekPublished(FarWindow* asked, int64_t part, const TrainerRounds& rounds, int32_t member,
                     std::span<std::byte> model, TrainerDriver::Seen* seen) {
  if (asked != nullptr) {
    FarAnswer answer;
    seen->state = asked->LookAtPublished(member, part, model, &answer);
    seen->version = answer.version;
    seen->step = answer.step;
    seen->is_superseded = rounds.HasSuperseded(answer.step);
    return Status::Ok();
  }
  RoundsPort::Seen published;
  RETURN_IF_ERROR(rounds.Peek(member, model, &published));
  seen->step = published.step;
  seen->is_superseded = published.superseded;
  if (!published.whole) seen->state = WindowState::kChanging;
  if (seen->step == 0) seen->state = WindowState::kNothing;
  return Status::Ok();
}

}  // namespace

std::unique_ptr<TrainerWindow> TrainerDriver::LeaveAll() {
  if (window_ != nullptr) window_->Leave();  // which shows what rounds have
  for (const auto& [from, rounds] : rounds_) rounds->Leave();
  for (const auto& [from, pairs] : pairs_) pairs->Leave();
  return std::move(window_);
}

Status TrainerDriver::Peek(int32_t member, std::span<void* const> parameters, Seen* seen) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  const auto pairs = pairs_.find(trainer_.part());
  const bool is_far = window_ != nullptr && window_->IsFar();
  const bool asks = is_far && member != ToInt(options_.group->my_index);
  seen->version = trainer_.version();
  if (pairs != pairs_.end() && (window_ == nullptr || is_far))
    seen->state = pairs->second->Peek(member, nullptr).state;
  // A question for the model is one for the version, too.
  else if (window_ != nullptr && !(asks && !parameters.empty()))
    seen->state = window_->Look(member, {}, &seen->version);
  if (parameters.empty()) return Status::Ok();
  // Looks for a model that is on its way write nothing.
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(layout_.length_bytes());
  RETURN_IF_ERROR(PeekModel(member, {copy.get(), layout_.length_bytes()}, seen));
  if (seen->state == WindowState::kWhole) layout_.CopyOut(copy.get(), parameters);
  return Status::Ok();
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
  const bool is_far = window_ != nullptr && window_->IsFar();
  if (has_models) {
    const bool asks = is_far && member != ToInt(options_.group->my_index);
    FarWindow* asked = asks ? static_cast<FarWindow*>(window_.get()) : nullptr;
    return PeekPublished(asked, trainer_.part(), *rounds, member, model, seen);
  }
  const bool sees_marks = window_ != nullptr && !is_far;
  const PairsPort::Seen handed_in = pairs->second->Peek(member, model.data());
  seen->state = handed_in.state;
  seen->is_superseded = sees_marks ? window_->IsBehind(member) : handed_in.is_behind;
  if (!sees_marks) seen->version = handed_in.version;
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
