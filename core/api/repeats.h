// Whether a request repeats the operation before, so that it need not be validated again.
#ifndef COVEY_CORE_API_REPEATS_H_
#define COVEY_CORE_API_REPEATS_H_

#include "core/api/covey.h"
#include "core/engine/operation.h"

namespace covey {

// Whether Validate would make of `request` what `operation` was, an operation of its name and group
// that may be repeated, but for where its tensors lie; then they lie there. `check_nan`: the knob.
bool Repeats(const covey_request& request, bool check_nan, Operation* operation);

}  // namespace covey
#endif  // COVEY_CORE_API_REPEATS_H_
