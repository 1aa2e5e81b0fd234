// Helpers shared by the files of the C API over core/partial/rounds_port.h.
#ifndef COVEY_CORE_API_C_API_ROUNDS_H_
#define COVEY_CORE_API_C_API_ROUNDS_H_

#include "core/api/c_api.h"
#include "core/api/covey_rounds.h"
#include "core/api/runtime_handle.h"
#include "core/base/clock.h"
#include "core/partial/rounds_port.h"

namespace covey {

// Null: NoneOf says why.
RoundsPort* Find(const Use& use, covey_rounds number);

// covey_rounds_open.
Status OpenRounds(const Use& use, covey_runtime* runtime, const covey_rounds_config* config,
                  covey_rounds* number);

inline Status NoneOf(const Use& use) {
  if (use.get() == nullptr) return use.status();
  return Status::InvalidArgument("there are no such rounds, or they were closed");
}

inline Time DeadlineOf(int64_t timeout_ns) {
  return timeout_ns < 0 ? kNever : MonotonicNow() + timeout_ns;
}

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_ROUNDS_H_
