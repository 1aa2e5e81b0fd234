// Where the threads of a process sleep that drive its runtime (core/engine/engine.h).
//
// A process has two sleepers: its engine thread, and the waiter that holds the progress lock. A
// sleeper takes a ticket, calls SetParked, looks for work once more, and only then Park. Any
// thread; none blocks but Park.
#ifndef COVEY_CORE_TRANSPORT_PARKING_H_
#define COVEY_CORE_TRANSPORT_PARKING_H_

#include <cstdint>

#include "core/base/types.h"

namespace covey {

class Parking {
 public:
  // The sleeper that peers must ring. kNobody: a thread is awake. kMailOnly: the engine thread, but
  // only for messages, because no exchange waits for a tick.
  enum class Sleeper : uint32_t { kNobody = 0, kEngine = 1, kWaiter = 2, kMailOnly = 3 };

  virtual ~Parking() = default;

  virtual uint32_t Ticket(Sleeper sleeper) = 0;
  virtual void SetParked(Sleeper sleeper) = 0;
  virtual Sleeper Parked() const = 0;
  // Returns when rung since the ticket was taken, or at `until`.
  virtual void Park(Sleeper sleeper, uint32_t ticket, Time until) = 0;
  virtual void Ring(Sleeper sleeper) = 0;  // kEngine or kWaiter of this process
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PARKING_H_
