#include "core/base/tensor.h"

namespace covey {

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.ndim; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape.dims[i]);
  }
  return text + "]";
}

uint64_t GroupKey(const std::vector<Rank>& members) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a, 64 bit
  for (Rank r : members) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash ^= static_cast<uint64_t>((ToInt(r) >> shift) & 0xff);
      hash *= 1099511628211u;
    }
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace covey
