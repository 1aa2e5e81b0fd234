#include "core/device/ipc_buffers.h"

#include <algorithm>
#include <cstring>

namespace covey {
namespace {

// A word: the key's place in units of 64 bytes, then the buffer's place in units of 256, then a bit
// that is for the publisher of the word.
constexpr unsigned kKeyShift = 32;
constexpr uint64_t kKeyUnit = 64;

}  // namespace

IpcBuffers::~IpcBuffers() {
  for (const auto& [key, data] : opened_) ipc_memory_->Close(data);
  for (const Closing& closing : closing_) ipc_memory_->Close(closing.data);
  for (const Slab& slab : slabs_) {
    ipc_memory_->Free(slab.data);
    regions_->FreeShared(slab.key_offset);
  }
}

StagingBuffer* IpcBuffers::Take(size_t length_bytes) {
  CloseForgotten();
  return pool_.Take(length_bytes);
}

void IpcBuffers::CloseForgotten() {
  std::erase_if(closing_, [this](const Closing& closing) {
    if (!pool_.IsOver(Device::Queue::kToHost, closing.mark)) return false;
    ipc_memory_->Close(closing.data);
    return true;
  });
}

std::byte* IpcBuffers::Cut(size_t length_bytes) {
  const auto has_room = [length_bytes](const Slab& slab) {
    return slab.length_bytes - slab.used_bytes >= length_bytes;
  };
  auto slab = std::find_if(slabs_.begin(), slabs_.end(), has_room);
  if (slab == slabs_.end()) {
    if (!AddSlab(length_bytes)) return nullptr;
    slab = slabs_.end() - 1;
  }
  slab->used_bytes += length_bytes;
  return slab->data + slab->used_bytes - length_bytes;
}

bool IpcBuffers::AddSlab(size_t length_bytes) {
  const uint64_t place = regions_->AllocShared(sizeof(IpcKey));
  if (place == SharedRegions::kNoOffset) return false;
  Slab slab{.length_bytes = std::max(length_bytes, ipc_memory_->SlabBytes()), .key_offset = place};
  IpcKey key = {};
  slab.data = ipc_memory_->Alloc(slab.length_bytes, &key);
  if (slab.data == nullptr) {
    regions_->FreeShared(place);
    return false;
  }
  // Peers read it after a tick that comes later.
  std::memcpy(regions_->Base(regions_->rank()) + place, &key, sizeof(key));
  slabs_.push_back(slab);
  return true;
}

uint64_t IpcBuffers::WordOf(const StagingBuffer* buffer) const {
  if (buffer == nullptr) return 0;
  const auto holds = [buffer](const Slab& slab) {
    return buffer->data >= slab.data && buffer->data < slab.data + slab.length_bytes;
  };
  const auto slab = std::find_if(slabs_.begin(), slabs_.end(), holds);
  const auto units = static_cast<uint64_t>(buffer->data - slab->data) / kUnit;
  // A slab's first word would be 0 if its key lay at the region's begin: count keys from 1.
  return (slab->key_offset / kKeyUnit + 1) << kKeyShift | units << 1;
}

uint64_t IpcBuffers::Probe() {
  if (probe_ == nullptr) probe_ = Take(kUnit);
  return WordOf(probe_);
}

std::byte* IpcBuffers::Find(Rank peer, uint64_t word) {
  const uint64_t place = ((word >> kKeyShift) - 1) * kKeyUnit;
  const size_t within = (word & ((uint64_t{1} << kKeyShift) - 1)) / 2 * kUnit;
  if (peer == regions_->rank()) {
    for (const Slab& slab : slabs_)
      if (slab.key_offset == place) return slab.data + within;
    return nullptr;
  }
  if (std::find(gone_.begin(), gone_.end(), peer) != gone_.end()) return nullptr;
  auto found = opened_.find({peer, place});
  if (found == opened_.end()) {
    IpcKey key;
    std::memcpy(&key, regions_->Base(peer) + place, sizeof(key));
    std::byte* data = ipc_memory_->Open(key);
    if (data == nullptr) return nullptr;
    found = opened_.emplace(std::pair{peer, place}, data).first;
  }
  return found->second + within;
}

void IpcBuffers::Forget(Rank peer) {
  gone_.push_back(peer);
  const uint64_t mark = device_->Mark(Device::Queue::kToHost);
  std::erase_if(opened_, [&](const auto& entry) {
    if (entry.first.first != peer) return false;
    closing_.push_back({entry.second, mark});
    return true;
  });
  CloseForgotten();
}

}  // namespace covey
