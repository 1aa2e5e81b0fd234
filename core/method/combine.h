// The arguments of Method::combine, which makes a new replicated model from a version of deltas
// (Payload::kDelta).
#ifndef COVEY_CORE_METHOD_COMBINE_H_
#define COVEY_CORE_METHOD_COMBINE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/types.h"

namespace covey {

// Arrays of `count` elements of `dtype`, kF32 or kF64.
struct CombineArrays {
  DType dtype = DType::kF32;
  size_t count = 0;
  // The sum of so many deltas of ranks: the replicated model less what a rank has made of it.
  const std::byte* sum = nullptr;
  int64_t deltas = 1;
  std::byte* model = nullptr;  // the replicated one
  // Arrays of the method, replicated too, zeros at first; as many as Method::state names.
  std::span<std::byte* const> state;
};

}  // namespace covey
#endif  // COVEY_CORE_METHOD_COMBINE_H_
