// Host memory for messages of device tensors: pieces of this rank's arena, pinned, used again and
// again.
//
// Slabs are pinned once and cut into buffers (core/device/staging_pool.h). Of the arena no more
// than `arena_bytes` are taken, so that landing blocks find theirs; further buffers come from
// the heap, where peers reach it more slowly. Progress lock held.
#ifndef COVEY_CORE_DEVICE_PINNED_BUFFERS_H_
#define COVEY_CORE_DEVICE_PINNED_BUFFERS_H_

#include <memory>
#include <vector>

#include "core/device/device.h"
#include "core/device/staging_pool.h"
#include "core/transport/shared_regions.h"

namespace covey {

class PinnedBuffers {
 public:
  // Both outlive the buffers.
  PinnedBuffers(Device* device, SharedRegions* regions, uint64_t arena_bytes)
      : device_(device),
        regions_(regions),
        arena_bytes_(arena_bytes),
        pool_(device, kLeastBytes, [this](size_t length_bytes) { return Cut(length_bytes); }) {}
  // REQUIRES: the device has drained.
  ~PinnedBuffers();

  StagingBuffer* Take(size_t length_bytes) { return pool_.Take(length_bytes); }  // never null
  void GiveBack(StagingBuffer* buffer) { pool_.GiveBack(buffer); }

  uint64_t pinned_bytes() const { return pinned_bytes_; }  // of slabs
  size_t arena_slabs() const { return arena_slabs_; }      // slabs allocated in the arena

 private:
  static constexpr size_t kLeastBytes = 256;
  static constexpr size_t kSlabBytes = size_t{4} << 20;
  static constexpr size_t kPageBytes = 4096;

  struct Slab {
    std::byte* data = nullptr;  // page-aligned
    size_t length_bytes = 0;
    size_t used_bytes = 0;
    uint64_t offset = SharedRegions::kNoOffset;  // in the arena
    std::unique_ptr<std::byte[]> heap;           // if not there
    bool pinned = false;
  };

  std::byte* Cut(size_t length_bytes);
  Slab NewSlab(size_t length_bytes);

  Device* device_;
  SharedRegions* regions_;
  const uint64_t arena_bytes_;
  uint64_t arena_used_ = 0;
  uint64_t pinned_bytes_ = 0;
  size_t arena_slabs_ = 0;
  std::vector<Slab> slabs_;
  StagingPool pool_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_PINNED_BUFFERS_H_
