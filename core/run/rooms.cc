#include "core/run/rooms.h"

#include <algorithm>
#include <bit>

namespace covey {
namespace {

constexpr size_t kLeastBytes = 256;
constexpr size_t kLargeBytes = size_t{1} << 20;

// Few sizes, so that what was cut for one message fits the next.
size_t RoomBytes(size_t length_bytes) {
  if (length_bytes <= kLargeBytes) return std::bit_ceil(std::max(length_bytes, kLeastBytes));
  return (length_bytes + kLargeBytes - 1) / kLargeBytes * kLargeBytes;
}

}  // namespace

Rooms::~Rooms() {
  for (Slab& slab : slabs_) {
    if (slab.pinned) device_->Unpin(slab.data);
    if (slab.offset != Transport::kNoOffset) transport_->FreeShared(slab.offset);
  }
}

Room* Rooms::Take(size_t length_bytes) {
  TakeReturned();
  const size_t wanted = RoomBytes(length_bytes);
  const auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first <= 2 * wanted) {
    Room* room = found->second;
    free_.erase(found);
    room->to_host = room->to_device = 0;
    return room;
  }
  all_.push_back(std::make_unique<Room>(Room{.data = Cut(wanted), .length_bytes = wanted}));
  return all_.back().get();
}

void Rooms::GiveBack(Room* room) { returning_.push_back(room); }

void Rooms::TakeReturned() {
  const auto is_over = [this](Device::Queue queue, uint64_t mark) {
    return mark == 0 || device_->IsReached(queue, mark) == Device::Answer::kYes;
  };
  std::erase_if(returning_, [&](Room* room) {
    if (!is_over(Device::Queue::kToHost, room->to_host)) return false;
    if (!is_over(Device::Queue::kToDevice, room->to_device)) return false;
    free_.emplace(room->length_bytes, room);
    return true;
  });
}

std::byte* Rooms::Cut(size_t length_bytes) {
  for (Slab& slab : slabs_) {
    if (slab.length_bytes - slab.used_bytes < length_bytes) continue;
    slab.used_bytes += length_bytes;
    return slab.data + slab.used_bytes - length_bytes;
  }
  slabs_.push_back(NewSlab(length_bytes));
  slabs_.back().used_bytes = length_bytes;
  return slabs_.back().data;
}

Rooms::Slab Rooms::NewSlab(size_t length_bytes) {
  Slab slab;
  // So small a part of what the arena may give that several fit.
  const size_t usual = std::min<uint64_t>(kSlabBytes, arena_bytes_ / 4 / kPageBytes * kPageBytes);
  slab.length_bytes = std::max((length_bytes + kPageBytes - 1) / kPageBytes * kPageBytes, usual);
  const size_t whole = slab.length_bytes + kPageBytes;  // pages are pinned, not lines
  std::byte* begin = nullptr;
  if (arena_used_ + whole <= arena_bytes_) slab.offset = transport_->AllocShared(whole);
  if (slab.offset != Transport::kNoOffset) {
    arena_used_ += whole;
    ++arena_slabs_;
    begin = transport_->Base(transport_->rank()) + slab.offset;
  } else {
    slab.heap = std::make_unique_for_overwrite<std::byte[]>(whole);
    begin = slab.heap.get();
  }
  const auto address = reinterpret_cast<uintptr_t>(begin);
  slab.data = begin + ((kPageBytes - address % kPageBytes) % kPageBytes);
  slab.pinned = device_->Pin(slab.data, slab.length_bytes);
  if (slab.pinned) pinned_bytes_ += slab.length_bytes;
  return slab;
}

}  // namespace covey
