// A device whose memory the host cannot reach: its addresses are none of the host's, and following
// one ends the process. It computes and copies late, each queue in order, and a copy reads and
// writes at the time at which it is done. So does a reduction of what devices have in common.
#ifndef COVEY_TESTS_SIM_SIMULATOR_LATE_DEVICE_H_
#define COVEY_TESTS_SIM_SIMULATOR_LATE_DEVICE_H_

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "core/device/device.h"
#include "core/device/ipc_memory.h"

namespace covey {

class LateDevice final : public Device, public IpcMemory {
 public:
  // A copy takes up to `longest`.
  LateDevice(Clock* clock, uint64_t seed, Time longest)
      : clock_(clock), rng_(seed), longest_(longest) {}

  // The device's address of what the test keeps at `memory`, and back.
  static std::byte* OnDevice(const std::byte* memory) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(memory) ^ kNotOfTheHost);
  }

  // Where the host may look: memory of it is as it is.
  static std::byte* OnHost(const std::byte* address) {
    const bool on_device = (reinterpret_cast<uintptr_t>(address) & kNotOfTheHost) == kNotOfTheHost;
    return on_device ? OnDevice(address) : const_cast<std::byte*>(address);
  }

  // An event that completes at `at`, when `compute` is called. kNever: only by Finish.
  void* Compute(Time at, std::function<void()> compute);
  void Finish(void* event);
  static bool HasCompleted(void* event) { return static_cast<Event*>(event)->completed; }
  // As the user does: what `stream` was ordered after is done now.
  void Synchronize(void* stream);
  // Whether a copy is still to be done from or to this memory of the test's.
  bool Uses(const std::byte* memory, size_t length_bytes) const;
  size_t Waiting(Queue queue) const { return queues_[static_cast<size_t>(queue)].copies.size(); }
  // The driver fails in the call after `calls` more.
  void FailAfter(int calls) { calls_left_ = calls; }
  // From now on memory of it can be in common with other devices; whether it opens theirs, and how
  // much it has.
  void Share(bool opens, size_t length_bytes) {
    shares_ = true;
    opens_ = opens;
    memory_left_ = length_bytes;
  }
  // Called with each copy that is handed over.
  void OnCopy(std::function<void(Queue)> watch) { watch_ = std::move(watch); }

  void* Record(void* stream) override;
  void GiveBack(void*) override { ++given_back_; }
  int given_back() const { return given_back_; }
  Answer IsReady(void* event) override;
  bool Copy(Queue queue, std::byte* to, const std::byte* from, size_t length_bytes) override;
  uint64_t Mark(Queue queue) override;
  Answer IsReached(Queue queue, uint64_t mark) override;
  bool OrderAfter(void* stream, Queue queue, uint64_t mark) override;
  bool Pin(std::byte*, size_t) override { return true; }
  void Unpin(std::byte*) override {}
  // The owner of the copies is gone with its memory.
  void Drain() override { queues_ = {}; }
  std::string Failure() override { return failed_ ? "it has fallen off the bus" : ""; }
  Communicators* communicators() override { return communicators_; }
  void SetCommunicators(Communicators* communicators) { communicators_ = communicators; }

  IpcMemory* ipc_memory() override { return shares_ ? this : nullptr; }
  size_t SlabBytes() const override { return 16 << 10; }
  std::byte* Alloc(size_t length_bytes, IpcKey* key) override;
  // Peers that are late may still be at work on it.
  void Free(std::byte*) override {}
  std::byte* Open(const IpcKey& key) override;
  void Close(std::byte*) override {}
  bool Reduce(Queue queue, const Reduction& reduction, std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs, size_t count_elems) override;

 private:
  // Bits that no address of this machine's processes has set.
  static constexpr uintptr_t kNotOfTheHost = uintptr_t{0x4a} << 56;

  struct Event {
    Time at = 0;
    std::function<void()> compute;
    bool completed = false;
  };
  struct Pending {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t length_bytes = 0;
    Time at = 0;
    std::function<void()> reduce;  // in place of a copy
  };
  struct Line {
    std::deque<Pending> copies;
    uint64_t done = 0;
  };
  struct Order {
    Queue queue;
    uint64_t mark;
  };

  Line& Of(Queue queue) { return queues_[static_cast<size_t>(queue)]; }
  bool Fails();
  void DoOne(Line* line);
  void HandOver(Queue queue, Pending work);

  Clock* clock_;
  Rng rng_;
  Time longest_;
  std::deque<Event> events_;
  std::array<Line, 2> queues_;
  std::map<void*, std::vector<Order>> orders_;
  std::function<void(Queue)> watch_;
  int calls_left_ = -1;  // never
  int given_back_ = 0;
  bool failed_ = false;
  bool shares_ = false;
  bool opens_ = false;
  size_t memory_left_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  Communicators* communicators_ = nullptr;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_LATE_DEVICE_H_
