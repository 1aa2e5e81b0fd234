// From what a caller wrote in a covey_request to an Operation, or the sentence that says what is
// wrong with it.
//
// Local checks only; agreement of ranks is core/agree's. Pure but for allocating in
// `operation`.
#ifndef COVEY_CORE_API_VALIDATE_H_
#define COVEY_CORE_API_VALIDATE_H_

#include "core/api/covey.h"
#include "core/engine/tensor_queue.h"

namespace covey {

struct ValidationContext {
  const Group* group = nullptr;  // null: the request named a group that does not exist
  Rank self = kNoRank;
  bool has_device[3] = {true, false, false};  // by DeviceType
  bool check_nan = false;                     // the knob
};

Status Validate(const covey_request& request, const ValidationContext& context,
                Operation* operation);

}  // namespace covey
#endif  // COVEY_CORE_API_VALIDATE_H_
