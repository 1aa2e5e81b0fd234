// A device whose memory the host does not read: when its tensors may be read, how their bytes come
// to host memory and back, and how a stream of the user learns that they are back.
//
// It has two queues of its own, one in each direction; each works in order, beside the other and
// beside the user's streams. A mark is a number of a queue: the work handed over before it.
//
// Contract:
//  device-V1. No call waits for the device but Drain; Pin takes a while. Progress lock held, unless
//      said otherwise.
//  device-V2. A queue's marks rise, are never 0, and are reached in order.
//  device-V3. Memory of the host handed to Copy is pinned, or the copy may be slow; it and the
//      device's are borrowed until a mark made afterwards is reached.
//  device-V4. A device that has failed stays so: every later answer is kFailed, false, 0 or null,
//      and Failure says why.
#ifndef COVEY_CORE_DEVICE_DEVICE_H_
#define COVEY_CORE_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace covey {

class Communicators;
class IpcMemory;

class Device {
 public:
  enum class Queue : uint8_t { kToHost, kToDevice };
  enum class Answer : uint8_t { kNotYet, kYes, kFailed };

  virtual ~Device() = default;

  // An event that completes when what `stream` has to do now is done; null: it failed. Any thread.
  virtual void* Record(void* stream) = 0;
  // An event of Record; it may be recorded again. Any thread.
  virtual void GiveBack(void* event) = 0;
  // Whether an event, the user's or one of Record, has completed.
  virtual Answer IsReady(void* event) = 0;

  // Hands a copy to the queue. False: it failed.
  virtual bool Copy(Queue queue, std::byte* to, const std::byte* from, size_t length_bytes) = 0;
  virtual uint64_t Mark(Queue queue) = 0;  // 0: it failed
  virtual Answer IsReached(Queue queue, uint64_t mark) = 0;
  // Later work of `stream` comes after `mark`. False: it failed.
  virtual bool OrderAfter(void* stream, Queue queue, uint64_t mark) = 0;

  // Makes copies to and from this memory of the host fast. False: they are slow, but right.
  virtual bool Pin(std::byte* memory, size_t length_bytes) = 0;
  virtual void Unpin(std::byte* memory) = 0;

  // Waits until both queues have done all they were handed, or the device has failed.
  virtual void Drain() = 0;
  // In the driver's words; empty: it has not failed. Any thread.
  virtual std::string Failure() = 0;

  // Calls so far, by any thread, that may have waited for the device or taken as long: it begins
  // and ends with some, between them device-V1 wants none. Any thread.
  virtual uint64_t SynchronousCalls() { return 0; }

  // Null: peers open no memory of it. Goes with the device.
  virtual IpcMemory* ipc_memory() { return nullptr; }
  // Null: its tensors travel by copies only. Goes with the device.
  virtual Communicators* communicators() { return nullptr; }
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_DEVICE_H_
