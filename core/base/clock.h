// Time. Where threads wait a real clock is asked: engine, ports, trainer driver, transports, C API.
// All else takes the time as an argument, so that the simulator can run it.
#ifndef COVEY_CORE_BASE_CLOCK_H_
#define COVEY_CORE_BASE_CLOCK_H_

#include "core/base/types.h"

namespace covey {

// Monotonic: not moved by clock changes. Equal on all processes of a host.
Time MonotonicNow();

// Time since 1970, for output of the process (traces). Never for deciding anything: it may jump.
Time WallClockNow();

// The processor time that this process has used. Slower than the others: a call of the kernel.
Time ProcessorTime();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() = 0;
};

class MonotonicClock final : public Clock {
 public:
  Time Now() override { return MonotonicNow(); }
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_CLOCK_H_
