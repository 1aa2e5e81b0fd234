// Tensors of devices: where their messages lie while an exchange runs, and the paths there.
//
// Two paths: through buffers of the host (device-F1 to device-F4, core/device/device_transfers.h),
// or by IPC, through buffers of the devices of a host, which reduce them themselves (device-O1 to
// device-O4, core/device/ipc_memory.h). All members of an exchange take the same path: their begins
// say what buffers they have, and every member judges alike.
//
// Progress lock held; nothing here waits for a device.
#ifndef COVEY_CORE_RUN_DEVICE_STAGING_H_
#define COVEY_CORE_RUN_DEVICE_STAGING_H_

#include <array>
#include <memory>
#include <vector>

#include "core/device/device_transfers.h"
#include "core/run/data_path.h"
#include "core/run/exchange.h"
#include "core/transport/shared_regions.h"

namespace covey {

// Through buffers of the host.
class HostStagingPath : public DataPath {
 public:
  explicit HostStagingPath(Rank self) : self_(self) {}

  Answer Stage(Exchange* exchange) override;
  Answer MayRun(Exchange* exchange, const Step& step) override;
  Answer DidRun(Exchange* exchange, const Step& step) override;
  bool Finish(Exchange* exchange, bool done) override;

 protected:
  Answer Lost(const Exchange& exchange);  // the device: kFailed

 private:
  Answer HasCome(Exchange* exchange, size_t end);

  Rank self_;
};

// By IPC: the same ways there and back.
class IpcStagingPath final : public HostStagingPath {
 public:
  using HostStagingPath::HostStagingPath;

  Answer MayRun(Exchange* exchange, const Step& step) override;
  bool ReducesItself() const override { return true; }
  Answer Reduce(Exchange* exchange) override;

  // Opens the buffers that the members' begins name. False: some cannot be reached.
  bool FindBuffers(const Exchange& exchange);

 private:
  std::vector<std::byte*> buffers_;  // of FindBuffers, by group index; null: cannot be reached
};

class DeviceStaging {
 public:
  struct Options {
    uint64_t arena_bytes = 0;  // of the arena, for messages of device tensors
    uint64_t ipc_bytes = 0;    // devices of a host reduce each other's memory from here on
  };

  // `regions` outlives this.
  DeviceStaging(Options options, SharedRegions* regions)
      : options_(options), regions_(regions), host_(regions->rank()), ipc_(regions->rank()) {}

  // From now on exchanges may be of tensors on this device, which outlives this.
  void AddDevice(DeviceType type, Device* device);
  const DeviceTransfers* transfers(DeviceType type) const {
    return transfers_[static_cast<size_t>(type)].get();
  }

  // Gives the exchange its path, and points its spans into a buffer. Without device memory
  // for one it begins void: then all members do, once.
  void Map(Exchange* exchange);
  // `buffer` of the begin's placement.
  uint64_t BufferWord(const Exchange& exchange) const;
  // All have begun. False: members do not agree where this message lies, and it begins again
  // through the host.
  bool JudgeBuffers(Exchange* exchange);
  void Forget(Rank lost);

 private:
  IpcBuffers* IpcOf(const Exchange& exchange) const;
  void MapByIpc(Exchange* exchange);

  Options options_;
  SharedRegions* regions_;
  HostStagingPath host_;
  IpcStagingPath ipc_;
  std::array<std::unique_ptr<DeviceTransfers>, 3>
      transfers_;  // by DeviceType; null: there is no such device
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_DEVICE_STAGING_H_
