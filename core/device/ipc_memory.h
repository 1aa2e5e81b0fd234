// Memory of a device that the ranks of a host open by IPC: each allocates, all that are let in open
// it, and the device computes on all of it.
//
// Contract (device-V1 to device-V4 of core/device/device.h hold):
//  device-O1. An opened address stays good until Close, even if its owner has died: its memory
//      may then hold anything. It is closed before its owner frees it, or the owner has died.
//  device-O2. Copy and Reduce are handed to a queue of the device, in which they are done in order;
//      a mark made afterwards says when.
//  device-O3. Reduce computes what Kernels::reduce does (kernels-K1 to kernels-K6), bit for bit.
#ifndef COVEY_CORE_DEVICE_IPC_MEMORY_H_
#define COVEY_CORE_DEVICE_IPC_MEMORY_H_

#include <cstddef>
#include <span>

#include "core/base/kernels.h"
#include "core/device/covey_commons.h"
#include "core/device/device.h"

namespace covey {

using IpcKey = covey_commons_key;

class IpcMemory {
 public:
  static constexpr size_t kMaxMembers = COVEY_COMMONS_MAX_SOURCES;

  virtual ~IpcMemory() = default;

  // How much is allocated at a time, unless a message needs more.
  virtual size_t SlabBytes() const { return size_t{32} << 20; }
  // 256-byte aligned. Null: there is none left, which is no failure of the device.
  virtual std::byte* Alloc(size_t length_bytes, IpcKey* key) = 0;
  virtual void Free(std::byte* memory) = 0;
  // Another rank's, under the key that it was allocated with; takes a while. Null: it cannot be
  // reached from here.
  virtual std::byte* Open(const IpcKey& key) = 0;
  virtual void Close(std::byte* memory) = 0;

  // Within the device. False: it failed.
  virtual bool Copy(Device::Queue queue, std::byte* to, const std::byte* from,
                    size_t length_bytes) = 0;
  virtual bool Reduce(Device::Queue queue, const Reduction& reduction,
                      std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                      size_t count_elems) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_IPC_MEMORY_H_
