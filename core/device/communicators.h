// Collectives that the devices of a group do among themselves, without the host's memory: over a
// communicator, which all members open together, once for the group, and keep (as NCCL's; plug-ins
// call it a circuit).
//
// Contract:
//  device-C1. No call waits, neither for the device nor for peers. Progress lock held.
//  device-C2. Members open a communicator with one id, which the first of them has made; it is
//      ready on each by and by, or fails. Nothing bounds how long that takes.
//  device-C3. Work is launched on a ready communicator one at a time: the next once IsLaunched has
//      said yes. It is done in that order, and all members launch the same in the same order
//      (core/device/launch_order.h).
//  device-C4. A communicator that has failed or was aborted stays so, and does nothing more once
//      IsOver. Until then memory of its work may be written. One that takes too long is given up.
//  device-C5. Two ranks whose Device() is equal cannot be in one communicator.
#ifndef COVEY_CORE_DEVICE_COMMUNICATORS_H_
#define COVEY_CORE_DEVICE_COMMUNICATORS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device/covey_circuits.h"

namespace covey {

using Communicator = covey_circuit;
using CommunicatorId = std::array<char, COVEY_CIRCUIT_ID_BYTES>;

class Communicators {
 public:
  enum class Answer : uint8_t { kNotYet, kYes, kFailed };

  virtual ~Communicators() = default;

  virtual uint64_t Device() = 0;
  // Whether there is what communicators are made with. The first call begins to look for it;
  // kFailed: Trouble says why there is not.
  virtual Answer Offers() = 0;
  virtual std::string Trouble() = 0;
  // REQUIRES: Offers. Makes one id; call it until it does not say kNotYet.
  virtual Answer MakeId(CommunicatorId* id) = 0;
  // Null: no memory. Communicators go with this object.
  virtual Communicator* Open(const CommunicatorId& id, int32_t me, int32_t size) = 0;
  virtual Answer IsReady(Communicator* communicator) = 0;

  // Later launches come after the work that `event` was recorded for. False: it failed.
  virtual bool After(Communicator* communicator, void* event) = 0;
  virtual bool Launch(Communicator* communicator, const covey_circuit_work& work) = 0;
  // Of the last launch: whether it is in the device's hands; *mark then names it.
  virtual Answer IsLaunched(Communicator* communicator, uint64_t* mark) = 0;
  virtual Answer IsDone(Communicator* communicator, uint64_t mark) = 0;

  virtual void Abort(Communicator* communicator) = 0;  // begins to; any number of times
  virtual bool IsOver(Communicator* communicator) = 0;
  // An aborted one is not waited for any more, also not when this object goes.
  virtual void GiveUp(Communicator* communicator) = 0;
  virtual std::string Failure(Communicator* communicator) = 0;  // empty: it has not failed
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_COMMUNICATORS_H_
