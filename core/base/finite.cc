#include "core/base/finite.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace covey {
namespace {

// Looked at as integers: all bits of the exponent are set in what is not finite, and in nothing
// else.
struct F32 {
  using Word = uint32_t;
  static constexpr uint32_t kExponent = 0x7f800000;
};
struct F64 {
  using Word = uint64_t;
  static constexpr uint64_t kExponent = 0x7ff0000000000000;
};
struct F16 {
  using Word = uint16_t;
  static constexpr uint16_t kExponent = 0x7c00;
};
struct BF16 {
  using Word = uint16_t;
  static constexpr uint16_t kExponent = 0x7f80;
};

constexpr size_t kBlock = 1024;  // of a known length, so that it becomes vector instructions

template <typename F>
size_t Count(const std::byte* data, size_t count) {
  const auto is_not = [data](size_t i) {
    typename F::Word word;  // memory may begin anywhere
    std::memcpy(&word, data + i * sizeof(word), sizeof(word));
    return (word & F::kExponent) == F::kExponent;
  };
  size_t found = 0;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    decltype(F::kExponent + 0) block = 0;
    for (size_t j = 0; j < kBlock; ++j) block += is_not(i + j) ? 1 : 0;
    found += static_cast<size_t>(block);
  }
  for (; i < count; ++i) found += is_not(i) ? 1 : 0;
  return found;
}

}  // namespace

size_t CountNotFinite(DType dtype, const std::byte* data, size_t count) {
  switch (dtype) {
    case DType::kF32:
      return Count<F32>(data, count);
    case DType::kF64:
      return Count<F64>(data, count);
    case DType::kF16:
      return Count<F16>(data, count);
    case DType::kBF16:
      return Count<BF16>(data, count);
    default:
      return 0;
  }
}

size_t FirstNotFinite(DType dtype, const std::byte* data, size_t count) {
  const size_t size = SizeOf(dtype);
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t length = std::min(kBlock, count - i);
    if (CountNotFinite(dtype, data + i * size, length) == 0) continue;
    while (CountNotFinite(dtype, data + i * size, 1) == 0) ++i;
    return i;
  }
  return count;
}

}  // namespace covey
