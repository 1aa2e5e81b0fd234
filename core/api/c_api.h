// Shared parts of the files of the C API. Any thread.
#ifndef COVEY_CORE_API_C_API_H_
#define COVEY_CORE_API_C_API_H_

#include <string>

#include "core/api/covey.h"
#include "core/base/status.h"
#include "core/base/types.h"

namespace covey {

class Session;

// Fills *error, unless it is null, and returns the code.
covey_code Report(const Status& status, covey_error* error);

// The buffer rule of covey_stats.
size_t Fill(const std::string& text, char* out, size_t capacity);

// The default runtime for null; null when covey_init was never called.
covey_runtime* OrDefault(covey_runtime* runtime);

// How long calls have waited in all: covey_blocked_ns.
Time WaitedTime(Session* session);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_H_
