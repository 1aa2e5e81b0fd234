// Calls of one trainer follow one another.
#ifndef COVEY_CORE_ENGINE_TRAINER_DRIVER_LOCK_H_
#define COVEY_CORE_ENGINE_TRAINER_DRIVER_LOCK_H_

#include <mutex>

#include "core/base/status.h"

namespace covey {

// The lock of a call of a trainer, which another call beside it does not wait for.
inline Status TryLock(std::unique_lock<std::mutex>* lock) {
  if (lock->try_lock()) return Status::Ok();
  return Status::InvalidArgument(
      "two threads call one trainer at once: its calls follow one another");
}

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_DRIVER_LOCK_H_
