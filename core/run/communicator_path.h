// Exchanges that the devices do among themselves, over a communicator (NCCL): what of
// core/device/communicator_registry.h and core/device/launch_order.h an exchange goes through.
//
// No data path: such an exchange runs no schedule. Its ticks: 1 begun, 2 its turn is proposed, 3
// the device has done it here. A member that is lost before its tick 3 ends the exchange, and the
// communicator with it.
//
// Progress lock held; nothing here waits for a device.
#ifndef COVEY_CORE_RUN_COMMUNICATOR_PATH_H_
#define COVEY_CORE_RUN_COMMUNICATOR_PATH_H_

#include <cstdint>
#include <string>

#include "core/device/communicator_registry.h"
#include "core/device/launch_order.h"
#include "core/run/exchange.h"
#include "core/transport/peer_loss.h"
#include "core/transport/shared_regions.h"

namespace covey {

class CommunicatorPath {
 public:
  static constexpr uint32_t kTurnTick = 2;
  static constexpr uint32_t kDoneTick = 3;

  struct Options {
    DevicePath path = DevicePath::kAuto;
    uint64_t least_bytes = 0;  // less than this is staged
    Time patience = kNever;    // with a communicator that was aborted
    Log* log = nullptr;        // outlives this; null: nothing is said
  };

  // `regions` outlives this.
  CommunicatorPath(Options options, SharedRegions* regions)
      : options_(options),
        regions_(regions),
        registry_(options.path, options.patience, regions->rank(), options.log),
        order_(regions->rank()) {}

  // Of the device of this type. Outlives this.
  void SetCommunicators(DeviceType type, Communicators* communicators);

  // Whether the exchange begins for a communicator, as its header will say.
  void RequestCommunicator(Exchange* exchange);
  // The header's part, before tick 1.
  void Publish(Exchange* exchange);
  // All have begun alike: the decision. kAgain: it has to begin once more, staged.
  CommunicatorVerdict Judge(Exchange* exchange);
  std::string Refusal(const Group& group) const { return registry_.Refusal(group); }
  // After kCommunicator: writes this rank's turn, which tick 2 tells of.
  void Propose(Exchange* exchange);
  // All members' turns are known.
  void Settle(Exchange* exchange);
  // Drives the launch. kYes: the device has done it.
  Communicators::Answer Advance(Exchange* exchange);

  // Whether another exchange has ended the group's communicator, by whose fault, and how.
  bool IsAborted(const Group& group, PeerLoss* why) const;
  std::string Failure(const Group& group) {
    return communicators_->Failure(registry_.CommunicatorOf(group));
  }
  // The exchange is aborted here: work launched on some member will never be on this one, so the
  // communicator is over. True: the device may still write the memory of this exchange.
  bool Abort(Exchange* exchange, const PeerLoss& why, Time now);
  // Nothing of an aborted communicator touches memory any more, or it was given up.
  bool IsOver(const Group& group, Time now) { return registry_.IsOver(group, now); }

 private:
  bool Launch(Exchange* exchange);

  Options options_;
  SharedRegions* regions_;
  CommunicatorRegistry registry_;
  LaunchOrder order_;
  Communicators* communicators_ = nullptr;
  DeviceType communicators_of_ = DeviceType::kCpu;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_COMMUNICATOR_PATH_H_
