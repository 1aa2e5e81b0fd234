// Tensors of devices: where their messages lie while an exchange runs, and the paths there.
//
// Two paths: through rooms of the host (device-F1 to device-F4, core/device/ferry.h), or through
// rooms that the devices of a host have in common and reduce themselves (device-O1 to device-O4,
// core/device/commons.h). All members of an exchange take the same path: their begins say what
// rooms they have, and every member judges alike.
//
// Progress lock held; nothing here waits for a device.
#ifndef COVEY_CORE_RUN_DEVICE_STAGING_H_
#define COVEY_CORE_RUN_DEVICE_STAGING_H_

#include <array>
#include <memory>
#include <vector>

#include "core/device/ferry.h"
#include "core/run/data_path.h"
#include "core/run/exchange.h"
#include "core/transport/shared_regions.h"

namespace covey {

// Through rooms of the host.
class HostRoomPath : public DataPath {
 public:
  explicit HostRoomPath(Rank self) : self_(self) {}

  Answer Stage(Exchange* exchange) override;
  Answer MayRun(Exchange* exchange, const Step& step) override;
  Answer DidRun(Exchange* exchange, const Step& step) override;
  bool Land(Exchange* exchange, bool done) override;

 protected:
  Answer Lost(const Exchange& exchange);  // the device: kFailed

 private:
  Answer HasCome(Exchange* exchange, size_t end);

  Rank self_;
};

// Through rooms in common: the same ways there and back.
class CommonRoomPath final : public HostRoomPath {
 public:
  using HostRoomPath::HostRoomPath;

  Answer MayRun(Exchange* exchange, const Step& step) override;
  bool ReducesItself() const override { return true; }
  Answer Reduce(Exchange* exchange) override;

  // Opens the rooms that the members' begins name. False: some cannot be reached.
  bool FindRooms(const Exchange& exchange);

 private:
  std::vector<std::byte*> rooms_;  // of FindRooms, by group index; null: cannot be reached
};

class DeviceStaging {
 public:
  struct Options {
    uint64_t arena_bytes = 0;  // of the arena, for messages of device tensors
    bool commons = true;       // devices of a host may reduce each other's memory
  };

  // `regions` outlives this.
  DeviceStaging(Options options, SharedRegions* regions)
      : options_(options), regions_(regions), host_(regions->rank()), common_(regions->rank()) {}

  // From now on exchanges may be of tensors on this device, which outlives this.
  void AddDevice(DeviceType type, Device* device);
  const Ferry* ferry(DeviceType type) const { return ferries_[static_cast<size_t>(type)].get(); }

  // Gives the exchange its path, and points its spans into a room. Without memory for a room in
  // common it begins void: then all members do, once.
  void Board(Exchange* exchange);
  // What the begin's placement says as `room`.
  uint64_t RoomWord(const Exchange& exchange) const;
  // All have begun. False: members do not agree where this message lies, and it begins again
  // through the host.
  bool JudgeRooms(Exchange* exchange);
  void Forget(Rank lost);

 private:
  CommonRooms* CommonOf(const Exchange& exchange) const;
  void BoardInCommon(Exchange* exchange);

  Options options_;
  SharedRegions* regions_;
  HostRoomPath host_;
  CommonRoomPath common_;
  std::array<std::unique_ptr<Ferry>, 3> ferries_;  // by DeviceType; null: there is no such device
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_DEVICE_STAGING_H_
