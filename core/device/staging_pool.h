// Staging buffers of a few sizes, used again and again, for copies between a device and the host.
//
// A buffer is cut once and stays one of its size; the owner cuts it. Progress lock held.
//
// Invariant: a buffer is handed out again only after the device has reached the marks it was given
// back with (device-F4 of core/device/device_transfers.h).
#ifndef COVEY_CORE_DEVICE_STAGING_POOL_H_
#define COVEY_CORE_DEVICE_STAGING_POOL_H_

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/device/device.h"

namespace covey {

struct StagingBuffer {
  std::byte* data = nullptr;  // 64-byte aligned
  size_t length_bytes = 0;    // at least what was asked for
  // Given back with: the last work of each queue on it; 0 = none.
  uint64_t to_host = 0;
  uint64_t to_device = 0;
};

class StagingPool {
 public:
  // So many new bytes; null: there are none.
  using Cut = std::function<std::byte*(size_t length_bytes)>;

  // The device outlives the pool. `least_bytes`: a power of two.
  StagingPool(Device* device, size_t least_bytes, Cut cut)
      : device_(device), least_bytes_(least_bytes), cut_(std::move(cut)) {}

  // Null: nothing fits, and nothing can be cut.
  StagingBuffer* Take(size_t length_bytes);
  void GiveBack(StagingBuffer* buffer) { returning_.push_back(buffer); }

  // Whether the device has come to the mark of that queue; 0 is none.
  bool IsOver(Device::Queue queue, uint64_t mark) const;

 private:
  void TakeReturned();
  size_t BufferBytes(size_t length_bytes) const;

  Device* device_;
  const size_t least_bytes_;
  const Cut cut_;
  std::vector<std::unique_ptr<StagingBuffer>> all_;
  std::multimap<size_t, StagingBuffer*> free_;  // by length
  std::vector<StagingBuffer*> returning_;       // given back, not yet free
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_STAGING_POOL_H_
