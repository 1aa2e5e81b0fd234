#include "core/device/room_pool.h"

#include <algorithm>
#include <bit>

namespace covey {
namespace {

constexpr size_t kLargeBytes = size_t{1} << 20;

}  // namespace

// Few sizes, so that what was cut for one message fits the next.
size_t RoomPool::RoomBytes(size_t length_bytes) const {
  if (length_bytes <= kLargeBytes) return std::bit_ceil(std::max(length_bytes, least_bytes_));
  return (length_bytes + kLargeBytes - 1) / kLargeBytes * kLargeBytes;
}

Room* RoomPool::Take(size_t length_bytes) {
  TakeReturned();
  const size_t wanted = RoomBytes(length_bytes);
  const auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first <= 2 * wanted) {
    Room* room = found->second;
    free_.erase(found);
    room->to_host = room->to_device = 0;
    return room;
  }
  std::byte* data = cut_(wanted);
  if (data == nullptr) return nullptr;
  all_.push_back(std::make_unique<Room>(Room{.data = data, .length_bytes = wanted}));
  return all_.back().get();
}

bool RoomPool::IsOver(Device::Queue queue, uint64_t mark) const {
  // device-F4: a room is free only when the last copy from it and to it is over.
  return mark == 0 || device_->IsReached(queue, mark) == Device::Answer::kYes;
}

void RoomPool::TakeReturned() {
  std::erase_if(returning_, [&](Room* room) {
    if (!IsOver(Device::Queue::kToHost, room->to_host)) return false;
    if (!IsOver(Device::Queue::kToDevice, room->to_device)) return false;
    free_.emplace(room->length_bytes, room);
    return true;
  });
}

}  // namespace covey
