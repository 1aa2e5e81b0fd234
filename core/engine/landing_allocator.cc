#include "core/engine/landing_allocator.h"

#include <algorithm>

namespace covey {

uint64_t LandingAllocator::Alloc(size_t slot_bytes, size_t members, uint32_t* depth) {
  const uint64_t wanted = used_bytes_ < kMostBytes ? wanted_bytes_ / slot_bytes : 0;
  *depth = static_cast<uint32_t>(std::clamp<uint64_t>(wanted, kMinLandingSlots, kMaxLandingSlots));
  uint64_t block = regions_->AllocShared(LandingBlockBytes(slot_bytes, *depth, members));
  if (block == SharedRegions::kNoOffset && *depth > kMinLandingSlots) {
    *depth = kMinLandingSlots;
    block = regions_->AllocShared(LandingBlockBytes(slot_bytes, *depth, members));
  }
  used_bytes_ += *depth * slot_bytes;
  count_ += block == SharedRegions::kNoOffset ? 0 : 1;
  return block;
}

}  // namespace covey
