// Parts of the files of core/engine/trainer_driver.h.
#ifndef COVEY_CORE_ENGINE_TRAINER_DRIVER_LOCK_H_
#define COVEY_CORE_ENGINE_TRAINER_DRIVER_LOCK_H_

#include <mutex>

#include "core/base/status.h"
#include "core/train/trainer.h"

namespace covey {

// The lock of a call of a trainer, which another call beside it does not wait for.
inline Status TryLock(std::unique_lock<std::mutex>* lock) {
  if (lock->try_lock()) return Status::Ok();
  return Status::InvalidArgument(
      "two threads call one trainer at once: its calls follow one another");
}

// Whether the next step is of a part whose models are this rank's own, and exchanged by operations.
inline bool IsOfAll(const Trainer& trainer) {
  return trainer.part() == Trainer::kNoPart && trainer.position().payload != Payload::kGradients;
}

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_DRIVER_LOCK_H_
