#include "core/base/tensor.h"

#include <cstring>
#include <limits>

namespace covey {
namespace {

template <typename T>
void Repeat(T value, std::span<std::byte> memory) {
  for (size_t at = 0; at < memory.size(); at += sizeof(T))
    std::memcpy(memory.data() + at, &value, sizeof(T));
}

// `one`, `highest`, `lowest`: of the type.
template <typename T>
void FillWith(Op op, T one, T highest, T lowest, std::span<std::byte> memory) {
  if (op == Op::kProduct) return Repeat(one, memory);
  if (op == Op::kMin) return Repeat(highest, memory);
  if (op == Op::kMax) return Repeat(lowest, memory);
  Repeat(T{0}, memory);
}

template <typename T>
void FillReal(Op op, std::span<std::byte> memory) {
  const T infinity = std::numeric_limits<T>::infinity();
  FillWith<T>(op, T{1}, infinity, -infinity, memory);
}

template <typename T>
void FillInteger(Op op, std::span<std::byte> memory) {
  FillWith<T>(op, T{1}, std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), memory);
}

}  // namespace

void FillIdentity(DType dtype, Op op, std::span<std::byte> memory) {
  switch (dtype) {
    case DType::kF32:
      return FillReal<float>(op, memory);
    case DType::kF64:
      return FillReal<double>(op, memory);
    case DType::kF16:  // 1, infinity, -infinity as bits
      return FillWith<uint16_t>(op, 0x3c00, 0x7c00, 0xfc00, memory);
    case DType::kBF16:
      return FillWith<uint16_t>(op, 0x3f80, 0x7f80, 0xff80, memory);
    case DType::kU8:
    case DType::kBool:
      return FillInteger<uint8_t>(op, memory);
    case DType::kI8:
      return FillInteger<int8_t>(op, memory);
    case DType::kI32:
      return FillInteger<int32_t>(op, memory);
    case DType::kI64:
      return FillInteger<int64_t>(op, memory);
    case DType::kI16:
      return FillInteger<int16_t>(op, memory);
    case DType::kU16:
      return FillInteger<uint16_t>(op, memory);
    case DType::kU32:
      return FillInteger<uint32_t>(op, memory);
    case DType::kU64:
      return FillInteger<uint64_t>(op, memory);
  }
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.ndim; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape.dims[i]);
  }
  return text + "]";
}

uint64_t GroupKey(const std::vector<Rank>& members, std::string_view order) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a, 64 bit
  const auto add = [&hash](int byte) {
    hash ^= static_cast<uint64_t>(byte & 0xff);
    hash *= 1099511628211u;
  };
  for (Rank r : members)
    for (int shift = 0; shift < 32; shift += 8) add(ToInt(r) >> shift);
  for (const char c : order) add(c);
  return hash == 0 ? 1 : hash;
}

}  // namespace covey
