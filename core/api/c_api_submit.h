// Operations on tensors that lie on a device.
#ifndef COVEY_CORE_API_C_API_SUBMIT_H_
#define COVEY_CORE_API_C_API_SUBMIT_H_

#include "core/api/session.h"
#include "core/base/status.h"
#include "core/engine/operation.h"

namespace covey {

// For each input without a ready event records one after the present work of its stream, on the
// device of the first, which the session has opened. kAborted: this rank has lost its device.
Status OrderAfterStreams(Session* session, Operation* operation);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_SUBMIT_H_
