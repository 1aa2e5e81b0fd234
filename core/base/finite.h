// How many numbers are NaN or infinite. Pure; one pass at the speed of memory.
#ifndef COVEY_CORE_BASE_FINITE_H_
#define COVEY_CORE_BASE_FINITE_H_

#include <cstddef>

#include "core/base/types.h"

namespace covey {

// Of `count` elements of any alignment; 0 for types that have none such.
size_t CountNotFinite(DType dtype, const std::byte* data, size_t count);

// The number of the first one; `count` when there is none.
size_t FirstNotFinite(DType dtype, const std::byte* data, size_t count);

}  // namespace covey
#endif  // COVEY_CORE_BASE_FINITE_H_
