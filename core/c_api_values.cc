// The C API of what numbers are: no runtime is needed.
#include "core/base/finite.h"
#include "core/covey.h"

int64_t covey_count_not_finite(covey_dtype dtype, const void* data, int64_t count) {
  if (dtype < 0 || dtype >= covey::kNumDTypes || data == nullptr || count <= 0) return 0;
  const auto type = static_cast<covey::DType>(dtype);
  return static_cast<int64_t>(
      covey::CountNotFinite(type, static_cast<const std::byte*>(data), static_cast<size_t>(count)));
}
