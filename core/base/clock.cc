#include "core/base/clock.h"

#include <ctime>

namespace covey {
namespace {

Time Read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

Time MonotonicNow() { return Read(CLOCK_MONOTONIC); }

Time WallClockNow() { return Read(CLOCK_REALTIME); }

Time ProcessorTime() { return Read(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace covey
