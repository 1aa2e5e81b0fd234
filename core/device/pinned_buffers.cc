#include "core/device/pinned_buffers.h"

#include <algorithm>

namespace covey {

PinnedBuffers::~PinnedBuffers() {
  for (Slab& slab : slabs_) {
    if (slab.pinned) device_->Unpin(slab.data);
    if (slab.offset != SharedRegions::kNoOffset) regions_->FreeShared(slab.offset);
  }
}

std::byte* PinnedBuffers::Cut(size_t length_bytes) {
  for (Slab& slab : slabs_) {
    if (slab.length_bytes - slab.used_bytes < length_bytes) continue;
    slab.used_bytes += length_bytes;
    return slab.data + slab.used_bytes - length_bytes;
  }
  slabs_.push_back(NewSlab(length_bytes));
  slabs_.back().used_bytes = length_bytes;
  return slabs_.back().data;
}

PinnedBuffers::Slab PinnedBuffers::NewSlab(size_t length_bytes) {
  Slab slab;
  // So small a part of what the arena may give that several fit.
  const size_t usual = std::min<uint64_t>(kSlabBytes, arena_bytes_ / 4 / kPageBytes * kPageBytes);
  slab.length_bytes = std::max((length_bytes + kPageBytes - 1) / kPageBytes * kPageBytes, usual);
  const size_t whole = slab.length_bytes + kPageBytes;  // pages are pinned, not lines
  std::byte* begin = nullptr;
  if (arena_used_ + whole <= arena_bytes_) slab.offset = regions_->AllocShared(whole);
  if (slab.offset != SharedRegions::kNoOffset) {
    arena_used_ += whole;
    ++arena_slabs_;
    begin = regions_->Base(regions_->rank()) + slab.offset;
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
