#include "ops/transports/tcp/lane.h"

namespace covey::tcp {

Lane::Lane(std::unique_ptr<Wire> wire, std::span<std::byte> memory) : memory_(memory) {
  stream_.Open(std::move(wire));
}

bool Lane::HasRoom() {
  const std::lock_guard lock(mutex_);
  waits_for_room_ = given_.size() + unsent_ >= Stream::kMostParcels && end() == End::kNone;
  return !waits_for_room_;
}

void Lane::Put(uint64_t offset, std::span<const std::byte> data) {
  if (end() != End::kNone) return;
  const std::lock_guard lock(mutex_);
  given_.emplace_back(offset, data);
}

void Lane::Land(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  memory_ = memory;
}

bool Lane::HasLanded(uint64_t count) {
  if (landed_.load() >= count) return true;
  awaited_ = count;
  return landed_.load() >= count;
}

bool Lane::IsConfirmed() {
  if (end() != End::kNone) return true;
  const std::lock_guard lock(mutex_);
  return given_.empty() && unsent_ == 0 && stream_.IsAcknowledged();
}

bool Lane::Send() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [offset, data] : given_) stream_.Put(offset, data);
    unsent_ += given_.size();
    given_.clear();
  }
  stream_.Flush();
  const std::lock_guard lock(mutex_);
  unsent_ = stream_.unsent();
  const bool is_room = waits_for_room_ && unsent_ < Stream::kMostParcels;
  if (is_room) waits_for_room_ = false;
  return is_room;
}

bool Lane::Receive() {
  if (end() != End::kNone) return false;
  {
    const std::lock_guard lock(mutex_);
    stream_.Land(memory_);
  }
  const uint64_t before = stream_.landed();
  std::span<const std::byte> message;
  stream_.BeginPass(kStep);
  const Outcome outcome = stream_.Receive(&message);
  landed_ = stream_.landed();
  const uint64_t awaited = awaited_.load();
  if (outcome == Outcome::kWait) return before < awaited && awaited <= stream_.landed();
  error_ = stream_.error();
  // A message has no place here.
  const bool malformed = outcome == Outcome::kDone || stream_.is_malformed();
  end_ = malformed ? End::kMalformed : End::kCut;
  return true;
}

}  // namespace covey::tcp
