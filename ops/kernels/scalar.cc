// The reference: one element at a time, no cleverness. Its results define kernels-K1 to kernels-K6
// of kernels.h; every other implementation is tested against it. Also runs integers with a scale,
// which need not be fast.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/kernels.h"

namespace covey {
namespace {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

float Widen(F16 half) {
  const int exponent = (half.bits >> 10) & 31;
  const int mantissa = half.bits & 1023;
  float value = 0;
  if (exponent == 31) {
    value = mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                          : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (half.bits & 0x8000) != 0 ? -value : value;
}

float Widen(BF16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// The nearest multiple of the unit in the last place, ties to even (nearbyint).
F16 NarrowToF16(float value) {
  if (std::isnan(value)) return {0x7e00};
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520) return {static_cast<uint16_t>(sign | 0x7c00)};
  const int exponent = std::max(magnitude == 0 ? -14 : std::ilogb(magnitude), -14);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // 2048 units carry into the exponent, fewer than 1024 (at exponent -14) borrow: a subnormal.
  const auto rounded = static_cast<uint32_t>(((exponent + 15) << 10) + units - 1024);
  return {static_cast<uint16_t>(sign | rounded)};
}

BF16 NarrowToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t kept = bits >> 16;
  const uint32_t lost = bits & 0xffff;
  const bool up = lost > 0x8000 || (lost == 0x8000 && (kept & 1) == 1);
  return {static_cast<uint16_t>(kept + (up ? 1 : 0))};  // a carry out of the mantissa is right
}

// Accumulator of T and the way there and back.
template <class T>
struct AccOf {
  using Type = T;
};
template <>
struct AccOf<F16> {
  using Type = float;
};
template <>
struct AccOf<BF16> {
  using Type = float;
};
template <class T>
using Acc = typename AccOf<T>::Type;

template <class T>
Acc<T> Read(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return Widen(value);
  }
}

template <class T>
void Write(std::byte* to, size_t index, Acc<T> acc) {
  T value;
  if constexpr (std::is_same_v<T, F16>) {
    value = NarrowToF16(acc);
  } else if constexpr (std::is_same_v<T, BF16>) {
    value = NarrowToBF16(acc);
  } else {
    value = acc;
  }
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <class A>
A Canonical(A value) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(value)) return std::numeric_limits<A>::quiet_NaN();
  }
  return value;
}

template <class A>
A Scale(A value, double scale) {
  if constexpr (std::is_floating_point_v<A>) {
    return value * static_cast<A>(scale);
  } else {
    if (scale == 1) return value;
    const double scaled = static_cast<double>(value) * scale;
    if (std::isnan(scaled)) return 0;
    // The first comparison must include the border: for int64 it is 2^63, which the type lacks.
    if (scaled >= static_cast<double>(std::numeric_limits<A>::max())) {
      return std::numeric_limits<A>::max();
    }
    if (scaled <= static_cast<double>(std::numeric_limits<A>::min())) {
      return std::numeric_limits<A>::min();
    }
    return static_cast<A>(scaled);
  }
}

template <class A>
A Divide(A value, int32_t divisor) {
  if constexpr (std::is_floating_point_v<A>) {
    return value / static_cast<A>(divisor);
  } else if constexpr (std::is_signed_v<A>) {
    return static_cast<A>(value / int64_t{divisor});
  } else {
    return static_cast<A>(value / static_cast<uint64_t>(divisor));
  }
}

template <class A>
A Last(const Reduction& r, A value) {
  return Canonical(Divide(Scale(value, r.postscale), r.divisor));
}

template <class A>
A Combine(Op op, A a, A b) {
  if (op == Op::kMin || op == Op::kMax) {
    if (a != a) return a;
    const bool keep = op == Op::kMin ? a < b : a > b;
    return keep ? a : b;
  }
  if constexpr (std::is_floating_point_v<A>) {
    return op == Op::kSum ? a + b : a * b;
  } else {
    // At least as wide as unsigned: the product of two uint16_t would be an int, and overflow.
    using U = std::common_type_t<std::make_unsigned_t<A>, unsigned>;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<A>(op == Op::kSum ? x + y : x * y);
  }
}

template <class T>
void ReduceAll(const Reduction& r, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs, size_t count_elems) {
  for (size_t i = 0; i < count_elems; ++i) {
    Acc<T> acc = Scale(Read<T>(inputs[0], i), r.prescale);
    for (const std::byte* input : inputs.subspan(1)) {
      acc = Combine(r.op, acc, Scale(Read<T>(input, i), r.prescale));
    }
    acc = Last(r, acc);
    for (std::byte* output : outputs) Write<T>(output, i, acc);
  }
}

template <class T>
void BeginAll(const Reduction& r, const std::byte* input, std::byte* acc, size_t count_elems) {
  for (size_t i = 0; i < count_elems; ++i) {
    Write<Acc<T>>(acc, i, Canonical(Scale(Read<T>(input, i), r.prescale)));
  }
}

template <class T>
void AddAll(const Reduction& r, const std::byte* input, std::byte* acc, size_t count_elems) {
  for (size_t i = 0; i < count_elems; ++i) {
    const Acc<T> x = Scale(Read<T>(input, i), r.prescale);
    Write<Acc<T>>(acc, i, Canonical(Combine(r.op, Read<Acc<T>>(acc, i), x)));
  }
}

template <class T>
void FinishAll(const Reduction& r, const std::byte* acc, std::byte* output, size_t count_elems) {
  for (size_t i = 0; i < count_elems; ++i) {
    Write<T>(output, i, Last(r, Read<Acc<T>>(acc, i)));
  }
}

// Calls f with a value of the type that stores `dtype`.
template <class F>
void WithType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kF16:
      return f(F16{});
    case DType::kBF16:
      return f(BF16{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kI16:
      return f(int16_t{});
    case DType::kU16:
      return f(uint16_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kBool:
      break;
  }
  CHECK(false, "there is no arithmetic on bool");
}

void Reduce(const Reduction& r, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, size_t count_elems, Stores) {
  CHECK(r.op != Op::kAverage, "an average is a sum with a divisor");
  CHECK(!inputs.empty());
  WithType(r.dtype, [&](auto t) { ReduceAll<decltype(t)>(r, inputs, outputs, count_elems); });
}
void Begin(const Reduction& r, const std::byte* input, std::byte* acc, size_t count_elems) {
  WithType(r.dtype, [&](auto t) { BeginAll<decltype(t)>(r, input, acc, count_elems); });
}
void Add(const Reduction& r, const std::byte* input, std::byte* acc, size_t count_elems) {
  CHECK(r.op != Op::kAverage, "an average is a sum with a divisor");
  WithType(r.dtype, [&](auto t) { AddAll<decltype(t)>(r, input, acc, count_elems); });
}
void Finish(const Reduction& r, const std::byte* acc, std::byte* output, size_t count_elems) {
  WithType(r.dtype, [&](auto t) { FinishAll<decltype(t)>(r, acc, output, count_elems); });
}
void Copy(std::byte* dst, const std::byte* src, size_t length_bytes, Stores) {
  if (length_bytes != 0) std::memmove(dst, src, length_bytes);
}

constexpr Kernels kScalar = {"scalar", Reduce, Begin, Add, Finish, Copy};

}  // namespace

const Kernels& ScalarKernels() { return kScalar; }

}  // namespace covey
