// What the parts of the C API over methods share.
#ifndef COVEY_CORE_API_C_API_METHODS_H_
#define COVEY_CORE_API_C_API_METHODS_H_

#include "core/api/runtime_handle.h"
#include "core/method/method.h"

namespace covey {

// What `text` chooses; null: what the knob of the runtime does.
Status Choose(const Use& use, const char* text, MethodChoice* choice);

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_METHODS_H_
