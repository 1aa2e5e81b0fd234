// Tensors of one request that share memory.
//
// Members read each other's inputs while they write outputs, so no output may share memory with
// another tensor of the request. A tensor that the request lists twice (tied weights) has one
// result: the later mention is moved to memory of the operation's own, and every mention is reduced
// from what the tensor held before. Tensors that share a part of their memory are refused.
//
// Pure but for allocating in the operation. Any thread.
#ifndef COVEY_CORE_ENGINE_OVERLAP_H_
#define COVEY_CORE_ENGINE_OVERLAP_H_

#include "core/engine/tensor_queue.h"

namespace covey {

// REQUIRES: each output, if there are any, was compared with its own input (core/api/validate.cc).
//
// InvalidArgument: two tensors, which the message numbers, share memory but are not the same; or
// they are the same and lie on a device.
Status SeparateTensors(Operation* operation);

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_OVERLAP_H_
