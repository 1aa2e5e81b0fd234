// Where a training is, and what it has counted; for checkpoints and statistics.
#include "core/engine/trainer_driver.h"
#include "core/engine/trainer_driver_lock.h"
#include "core/engine/trainer_pairs.h"
#include "core/engine/trainer_rounds.h"
#include "core/engine/trainer_window.h"

namespace covey {

Status TrainerDriver::GetPosition(Trainer::Position* position) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  *position = trainer_.position();
  for (const TrainerCodec* codec : operations_.CodecsOf(position->step))
    position->is_anchored |= codec->is_anchored();
  TrainerRounds* rounds = RoundsOf(trainer_.part());
  if (rounds == nullptr) return Status::Ok();
  position->step_time = rounds->step_time();
  position->published = static_cast<int64_t>(rounds->published());
  position->waited_for_all = rounds->waited_for_all();
  return Status::Ok();
}

Status TrainerDriver::TakeArrivals(size_t most, std::vector<TrainerSteps::Arrival>* arrivals) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  *arrivals = steps_.TakeArrivals(most);
  return Status::Ok();
}

Status TrainerDriver::GetCounts(TrainerCounts* counts, std::string* steps) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  *steps = steps_.Json();
  const size_t places = (gradients() != nullptr ? 1 : 0) + (model() != nullptr ? 1 : 0);
  counts->memory.exchange = places * layout_.length_bytes();
  counts->memory.codec = operations_.CodecBytes();
  for (const auto& [from, rounds] : rounds_) *counts += rounds->counts();
  for (const auto& [from, pairs] : pairs_) *counts += pairs->counts();
  const TrainerRounds* rounds = RoundsOf(trainer_.part());
  if (rounds == nullptr) return Status::Ok();
  const TrainerCounts here = rounds->counts();
  counts->made = here.made;
  counts->missing = here.missing;
  counts->is_copied = here.is_copied;
  return Status::Ok();
}

Status TrainerDriver::Restore(const Trainer::Position& position) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!trainer_.IsIdle())
    return Status::InvalidArgument("a position is restored between two steps, not within one");
  if (position.version < 0 || position.step < 0 || position.local < 0)
    return Status::InvalidArgument("a position has no negative version or step");
  RETURN_IF_ERROR(trainer_.Restore(position));
  if (window_ != nullptr) window_->Tell(trainer_.version(), false);
  TrainerRounds* rounds = RoundsOf(trainer_.part());
  if (rounds != nullptr) rounds->Assume(position.step_time);
  const bool has_deltas = rounds != nullptr && rounds->outer() != nullptr;
  if (has_deltas && position.is_anchored) rounds->outer()->OnWritten();
  for (TrainerCodec* codec : operations_.CodecsOf(position.step))
    codec->OnWritten(position.is_anchored);
  return Status::Ok();
}

Status TrainerDriver::GetState(std::vector<StateArray>* arrays) {
  std::unique_lock lock(mutex_, std::defer_lock);
  RETURN_IF_ERROR(TryLock(&lock));
  if (!trainer_.IsIdle())
    return Status::InvalidArgument("a trainer's state is read between two steps, not within one");
  const TrainerRounds* rounds = RoundsOf(trainer_.part());
  arrays->clear();
  for (TrainerCodec* codec : operations_.CodecsOf(trainer_.step()))
    for (const TrainerCodec::Array& array : codec->arrays())
      arrays->push_back({array.name, array.bytes});
  if (rounds == nullptr || rounds->outer() == nullptr) return Status::Ok();
  const std::vector<const char*> names = rounds->outer()->names();
  const std::vector<std::span<std::byte>> all = rounds->outer()->arrays();
  for (size_t i = 0; i < all.size(); ++i) arrays->push_back({names[i], all[i]});
  return Status::Ok();
}

}  // namespace covey
