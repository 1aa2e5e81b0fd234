// Shared parts of the C API over methods.
#ifndef COVEY_CORE_API_C_API_METHODS_H_
#define COVEY_CORE_API_C_API_METHODS_H_

#include "core/api/covey_methods.h"
#include "core/api/runtime_handle.h"
#include "core/method/method.h"

namespace covey {

// The caller's method, or for null the choice of the runtime's knob. REQUIRES: a runtime
// that is open. It outlives neither.
const MethodChoice& ChoiceOf(const Use& use, const covey_method* method);

// Why a method with a codec is refused where there is no element of float32: nothing of it would be
// smaller, though the method says so.
inline Status NothingToEncode(const std::string& method) {
  return Status::InvalidArgument("the method " + method +
                                 " has a codec, which is for float32, and no parameter is of it: "
                                 "leave out codec");
}

}  // namespace covey

struct covey_method {
  covey::MethodChoice choice;
};

#endif  // COVEY_CORE_API_C_API_METHODS_H_
