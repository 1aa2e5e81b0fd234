#include "core/device/staging_pool.h"

#include <algorithm>
#include <bit>

namespace covey {
namespace {

constexpr size_t kLargeBytes = size_t{1} << 20;

}  // namespace

// Few sizes, so that what was cut for one message fits the next.
size_t StagingPool::BufferBytes(size_t length_bytes) const {
  if (length_bytes <= kLargeBytes) return std::bit_ceil(std::max(length_bytes, least_bytes_));
  return (length_bytes + kLargeBytes - 1) / kLargeBytes * kLargeBytes;
}

StagingBuffer* StagingPool::Take(size_t length_bytes) {
  TakeReturned();
  const size_t wanted = BufferBytes(length_bytes);
  const auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first <= 2 * wanted) {
    StagingBuffer* buffer = found->second;
    free_.erase(found);
    buffer->to_host = buffer->to_device = 0;
    return buffer;
  }
  std::byte* data = cut_(wanted);
  if (data == nullptr) return nullptr;
  all_.push_back(
      std::make_unique<StagingBuffer>(StagingBuffer{.data = data, .length_bytes = wanted}));
  return all_.back().get();
}

bool StagingPool::IsOver(Device::Queue queue, uint64_t mark) const {
  // device-F4: a buffer is free only when the last copy from it and to it is over.
  return mark == 0 || device_->IsReached(queue, mark) == Device::Answer::kYes;
}

void StagingPool::TakeReturned() {
  std::erase_if(returning_, [&](StagingBuffer* buffer) {
    if (!IsOver(Device::Queue::kToHost, buffer->to_host)) return false;
    if (!IsOver(Device::Queue::kToDevice, buffer->to_device)) return false;
    free_.emplace(buffer->length_bytes, buffer);
    return true;
  });
}

}  // namespace covey
