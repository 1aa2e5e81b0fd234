// Staging buffers on the device (core/device/ipc_memory.h) for messages that the devices of a host
// reduce among themselves: those of this rank, and those of peers as seen from here.
//
// Slabs are allocated once, cut into buffers (core/device/staging_pool.h) and never given back:
// peers have them open. A buffer has a word by which every rank of the host finds it: where its
// slab's key lies in its owner's region, and how far into the slab it is. Progress lock held.
#ifndef COVEY_CORE_DEVICE_IPC_BUFFERS_H_
#define COVEY_CORE_DEVICE_IPC_BUFFERS_H_

#include <map>
#include <utility>
#include <vector>

#include "core/device/ipc_memory.h"
#include "core/device/staging_pool.h"
#include "core/transport/shared_regions.h"

namespace covey {

class IpcBuffers {
 public:
  // All three outlive the buffers.
  IpcBuffers(Device* device, IpcMemory* ipc_memory, SharedRegions* regions)
      : device_(device),
        ipc_memory_(ipc_memory),
        regions_(regions),
        pool_(device, kLeastBytes, [this](size_t length_bytes) { return Cut(length_bytes); }) {}
  // REQUIRES: the device has drained.
  ~IpcBuffers();

  // Null: the device has no memory left, or the arena none for a key.
  StagingBuffer* Take(size_t length_bytes);
  void GiveBack(StagingBuffer* buffer) { pool_.GiveBack(buffer); }

  // Even; 0: null was given.
  uint64_t WordOf(const StagingBuffer* buffer) const;
  // A word of this rank's, with which peers find out whether they reach its buffers; 0: it has
  // none.
  uint64_t Probe();
  // The buffer of `peer` with this word, opened if that is new. Null: it cannot be reached.
  std::byte* Find(Rank peer, uint64_t word);
  // The peer is gone: its open memory is closed once the queues are through with it.
  void Forget(Rank peer);

  IpcMemory* ipc_memory() const { return ipc_memory_; }
  size_t slabs() const { return slabs_.size(); }

 private:
  static constexpr size_t kLeastBytes = 4096;
  static constexpr size_t kUnit = 256;  // buffers begin at multiples of it

  struct Slab {
    std::byte* data = nullptr;
    size_t length_bytes = 0;
    size_t used_bytes = 0;
    uint64_t key_offset = 0;  // in the own region
  };
  struct Closing {
    std::byte* data;
    uint64_t mark;  // of the queue that reduces
  };

  void CloseForgotten();
  std::byte* Cut(size_t length_bytes);
  bool AddSlab(size_t length_bytes);

  Device* device_;
  IpcMemory* ipc_memory_;
  SharedRegions* regions_;
  StagingBuffer* probe_ = nullptr;
  std::vector<Slab> slabs_;
  StagingPool pool_;
  std::map<std::pair<Rank, uint64_t>, std::byte*> opened_;  // by owner and place of the key
  std::vector<Closing> closing_;
  std::vector<Rank> gone_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_IPC_BUFFERS_H_
