// A Device over the functions of a plug-in written in C (core/device/covey_device.h).
#ifndef COVEY_CORE_DEVICE_PLUGIN_DEVICE_H_
#define COVEY_CORE_DEVICE_PLUGIN_DEVICE_H_

#include <memory>
#include <optional>
#include <string_view>

#include "core/base/status.h"
#include "core/device/covey_device.h"
#include "core/device/device.h"
#include "core/device/ipc_memory.h"
#include "core/device/plugin_communicators.h"

namespace covey {

class PluginIpcMemory final : public IpcMemory {
 public:
  explicit PluginIpcMemory(const covey_commons& commons) : c_(commons) {}

  std::byte* Alloc(size_t length_bytes, IpcKey* key) override {
    return static_cast<std::byte*>(c_.alloc(c_.self, length_bytes, key));
  }
  void Free(std::byte* memory) override { c_.free(c_.self, memory); }
  std::byte* Open(const IpcKey& key) override {
    return static_cast<std::byte*>(c_.open(c_.self, &key));
  }
  void Close(std::byte* memory) override { c_.close(c_.self, memory); }
  bool Copy(Device::Queue queue, std::byte* to, const std::byte* from,
            size_t length_bytes) override {
    return c_.copy(c_.self, static_cast<int32_t>(queue), to, from, length_bytes) == 0;
  }
  bool Reduce(Device::Queue queue, const Reduction& reduction,
              std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
              size_t count_elems) override;

 private:
  covey_commons c_;
};

class PluginDevice final : public Device {
 public:
  // Opens device `index` of the plug-in `name`, which is looked for as core/transport/plugin.h
  // says. Errors (kUnsupported): the plug-in is not there, is no device, or reaches none, in its
  // words.
  static Status Open(std::string_view name, std::string_view plugin_path, int32_t index,
                     std::unique_ptr<Device>* device);
  ~PluginDevice() override { c_.close(c_.self); }

  void* Record(void* stream) override { return c_.record(c_.self, stream); }
  void GiveBack(void* event) override { c_.give_back(c_.self, event); }
  Answer IsReady(void* event) override { return AnswerOf(c_.is_ready(c_.self, event)); }
  bool Copy(Queue queue, std::byte* to, const std::byte* from, size_t length_bytes) override {
    return c_.copy(c_.self, In(queue), to, from, length_bytes) == 0;
  }
  uint64_t Mark(Queue queue) override { return c_.mark(c_.self, In(queue)); }
  Answer IsReached(Queue queue, uint64_t mark) override {
    return AnswerOf(c_.is_reached(c_.self, In(queue), mark));
  }
  bool OrderAfter(void* stream, Queue queue, uint64_t mark) override {
    return c_.order_after(c_.self, stream, In(queue), mark) == 0;
  }
  bool Pin(std::byte* memory, size_t length_bytes) override {
    return c_.pin(c_.self, memory, length_bytes) == 0;
  }
  void Unpin(std::byte* memory) override { c_.unpin(c_.self, memory); }
  void Drain() override { c_.drain(c_.self); }
  std::string Failure() override { return c_.failure(c_.self); }
  uint64_t SynchronousCalls() override { return c_.synchronous_calls(c_.self); }
  IpcMemory* ipc_memory() override { return ipc_memory_.get(); }
  Communicators* communicators() override {
    return communicators_.has_value() ? &*communicators_ : nullptr;
  }

 private:
  explicit PluginDevice(const covey_device& device) : c_(device) {
    if (c_.commons != nullptr) ipc_memory_ = std::make_unique<PluginIpcMemory>(*c_.commons);
    if (c_.circuits != nullptr) communicators_.emplace(*c_.circuits);
  }

  static covey_queue In(Queue queue) {
    return queue == Queue::kToHost ? COVEY_TO_HOST : COVEY_TO_DEVICE;
  }
  static Answer AnswerOf(int answer) {
    if (answer < 0) return Answer::kFailed;
    return answer > 0 ? Answer::kYes : Answer::kNotYet;
  }

  covey_device c_;
  // Empty: it has none.
  std::unique_ptr<PluginIpcMemory> ipc_memory_;
  std::optional<PluginCommunicators> communicators_;
};

class Plugin;

// Whether the plug-in `name`, which is one for a device, reaches any device of this machine.
Status CheckDevice(std::string_view name, const Plugin& plugin);

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_PLUGIN_DEVICE_H_
