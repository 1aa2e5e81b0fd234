// Copies the messages of exchanges between the memory of a device and staging buffers, in which
// everything else of core/run works on them as on any message.
//
// An exchange of device tensors has a Transfer: Map takes a buffer and points the exchange's spans
// into it; Fetch hands the copies of the input to the device, in chunks, so that what comes first
// can be used while the rest is under way; HasCome tells how far they are; Wrote hands over what
// the schedule has put into the output, again while the rest goes on; Unmap ends it. Nothing here
// waits for the device: at an exchange's end copies to it may still be under way, and the user's
// streams have been told to come after them.
//
// Invariants:
//  device-F1. Tensor memory is touched only after all ready events of the request have completed.
//  device-F2. A byte of the input is read in its buffer, here or by a peer, only once it has come.
//  device-F3. The work of a request's streams after the exchange's end comes after every copy of
//      it, however it ended.
//  device-F4. A buffer serves another exchange only after the last copy from and to it is over.
//
// Progress lock held. After a failure of the device (device-V4) answers are kFailed or false.
#ifndef COVEY_CORE_DEVICE_DEVICE_TRANSFERS_H_
#define COVEY_CORE_DEVICE_DEVICE_TRANSFERS_H_

#include <memory>
#include <vector>

#include "core/base/spans.h"
#include "core/base/tensor.h"
#include "core/device/device.h"
#include "core/device/ipc_buffers.h"
#include "core/device/pinned_buffers.h"

namespace covey {

// One exchange's copies. Plain state of the DeviceTransfers.
struct Transfer {
  // Copies to the host up to `end` bytes of the message, over once `mark` is reached.
  struct Chunk {
    size_t end = 0;
    uint64_t mark = 0;
  };

  StagingBuffer* buffer = nullptr;
  bool by_ipc = false;   // the buffer is on the device
  bool is_open = false;  // and peers' devices may be at work on it
  Spans from;  // on the device: the input, in the order of the message; empty: it is not read
  Spans to;    // on the device: the output; empty: the runtime allocates it
  std::byte* input = nullptr;  // in the buffer
  std::byte* output = nullptr;
  size_t events_complete = 0;  // of the tensors', inputs first: asked for once
  bool fetched = false;
  std::vector<Chunk> chunks;
  size_t chunks_arrived = 0;
  // Of the output, in the buffer but not written back.
  size_t written_begin = 0;
  size_t written_end = 0;
};

class DeviceTransfers {
 public:
  struct Counters {
    uint64_t to_host_bytes = 0;
    uint64_t to_device_bytes = 0;
  };

  // Both outlive this.
  DeviceTransfers(Device* device, SharedRegions* regions, uint64_t arena_bytes)
      : device_(device), pinned_(device, regions, arena_bytes) {
    if (device->ipc_memory() != nullptr && regions->SharesWithAll())
      ipc_buffers_ = std::make_unique<IpcBuffers>(device, device->ipc_memory(), regions);
  }
  ~DeviceTransfers() { device_->Drain(); }

  // `input` and `output` are the exchange's spans over device memory, which then lie in a buffer.
  Transfer* Map(const Request& request, Spans* input, Spans* output);
  // The same in a buffer that peers' devices reach: the output lies where the input does, but for a
  // reducescatter's, which lies behind it. Null: there is no such buffer.
  Transfer* MapByIpc(const Request& request, Spans* input, Spans* output);

  Device::Answer IsReady(void* event) { return device_->IsReady(event); }
  // In chunks of `chunk_bytes` at least; 0: in one. REQUIRES: device-F1; once. False: the device
  // has failed.
  bool Fetch(Transfer* transfer, size_t chunk_bytes);
  // Whether the first `end` bytes of the input are in the buffer. REQUIRES: Fetch, or end == 0.
  Device::Answer HasCome(Transfer* transfer, size_t end);
  // The host has written these bytes of the output. False: the device has failed.
  bool Wrote(Transfer* transfer, size_t begin, size_t length);
  // Writes back what is left if the exchange is done, and orders the streams of the request
  // (device-F3). The transfer is gone. False: the device has failed.
  bool Unmap(Transfer* transfer, const Request& request, bool done);

  std::string Failure() { return device_->Failure(); }
  uint64_t SynchronousCalls() const { return device_->SynchronousCalls(); }
  const Counters& counters() const { return counters_; }
  const PinnedBuffers& pinned_buffers() const { return pinned_; }
  // Null: no memory of the device is opened by peers.
  IpcBuffers* ipc_buffers() const { return ipc_buffers_.get(); }
  Device* device() { return device_; }

 private:
  Transfer* NewTransfer(const Request& request, const Spans& input, const Spans& output);
  void PointInto(Transfer* transfer, size_t output_offset, Spans* input, Spans* output);
  bool Copy(const Transfer& transfer, Device::Queue queue, std::byte* to, const std::byte* from,
            size_t length_bytes);
  bool WriteBack(Transfer* transfer);

  Device* device_;
  PinnedBuffers pinned_;
  std::unique_ptr<IpcBuffers> ipc_buffers_;
  std::vector<std::unique_ptr<Transfer>> all_;
  std::vector<Transfer*> free_;
  Counters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_DEVICE_TRANSFERS_H_
