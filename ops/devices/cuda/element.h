// The arithmetic of one element, as kernels-K1 to kernels-K6 of core/base/kernels.h want it, for
// the kernels of CUDA and, the very same code, for the tests that hold it against the CPU's on
// every machine.
//
// Plain constexpr functions: nvcc compiles them for the card (--expt-relaxed-constexpr), any C++
// compiler for the host. Nothing here may contract a multiplication and an addition or flush what
// is subnormal: -ffp-contract=off here, -fmad=false -ftz=false there. Half precision is turned with
// integers and not with the card's instructions, so that no bit depends on where it runs.
#ifndef COVEY_OPS_DEVICES_CUDA_ELEMENT_H_
#define COVEY_OPS_DEVICES_CUDA_ELEMENT_H_

#include <cstdint>
#include <limits>
#include <type_traits>

namespace covey::cuda {

// Numbers of Op in core/base/types.h.
inline constexpr unsigned kSum = 0;
inline constexpr unsigned kMin = 2;
inline constexpr unsigned kMax = 3;
inline constexpr unsigned kProduct = 4;

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

constexpr float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }
constexpr uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }

constexpr float Widen(F16 half) {
  const uint32_t sign = (half.bits & 0x8000u) << 16;
  const uint32_t rest = half.bits & 0x7fffu;
  if (rest >= 0x7c00) return FloatOf(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Exact, also for subnormal numbers: the exponent's biases differ by 112.
  const float magnitude = FloatOf(rest << 13) * 0x1p112f;
  return FloatOf(sign | BitsOf(magnitude));
}
constexpr float Widen(BF16 half) { return FloatOf(static_cast<uint32_t>(half.bits) << 16); }

// REQUIRES (both): a NaN is the one of Canonical.
constexpr F16 NarrowToF16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return {0x7e00};
  if (rest >= BitsOf(65520.0f)) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (rest < BitsOf(0x1p-14f)) {
    // The unit in the last place of a half is 2^-24, that of a half's subnormals too: adding 0.5
    // rounds to it.
    const uint32_t units = BitsOf(FloatOf(rest) + 0.5f) - BitsOf(0.5f);
    return {static_cast<uint16_t>(sign | units)};
  }
  const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
  return {static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13)};
}
constexpr BF16 NarrowToBF16(float value) {
  const uint32_t bits = BitsOf(value);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

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
// In what T is computed.
template <class T>
using Acc = typename AccOf<T>::Type;

template <class T>
constexpr Acc<T> Read(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return Widen(value);
  }
}

template <class T>
constexpr T Write(Acc<T> value) {
  if constexpr (std::is_same_v<T, F16>) {
    return NarrowToF16(value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return NarrowToBF16(value);
  } else {
    return value;
  }
}

template <class A>
constexpr A Canonical(A value) {
  if constexpr (std::is_same_v<A, float>) {
    if (value != value) return FloatOf(0x7fc00000);
  } else if constexpr (std::is_same_v<A, double>) {
    if (value != value) return __builtin_bit_cast(double, uint64_t{0x7ff8} << 48);
  }
  return value;
}

template <class A>
constexpr A Scale(A value, double scale) {
  if constexpr (std::is_floating_point_v<A>) {
    return value * static_cast<A>(scale);
  } else {
    if (scale == 1) return value;
    const double scaled = static_cast<double>(value) * scale;
    if (scaled != scaled) return 0;
    // The first comparison includes the border: for int64 it is 2^63, which the type lacks.
    if (scaled >= static_cast<double>(std::numeric_limits<A>::max()))
      return std::numeric_limits<A>::max();
    if (scaled <= static_cast<double>(std::numeric_limits<A>::min()))
      return std::numeric_limits<A>::min();
    return static_cast<A>(scaled);
  }
}

// Most sums have the divisor 1, and a card has no instruction for the quotient of integers.
template <class A>
constexpr A Divide(A value, int32_t divisor) {
  if (divisor == 1) return value;
  if constexpr (std::is_floating_point_v<A>) {
    return value / static_cast<A>(divisor);
  } else if constexpr (std::is_signed_v<A>) {
    return static_cast<A>(value / int64_t{divisor});
  } else {
    return static_cast<A>(value / static_cast<uint64_t>(divisor));
  }
}

template <unsigned kOp, class A>
constexpr A Combine(A a, A b) {
  if constexpr (kOp == kMin || kOp == kMax) {
    if (a != a) return a;
    const bool keep = kOp == kMin ? a < b : a > b;
    return keep ? a : b;
  } else if constexpr (std::is_floating_point_v<A>) {
    return kOp == kSum ? a + b : a * b;
  } else {
    using U = std::make_unsigned_t<A>;
    // In 64 bits: a product of two short ones would be one of ints, which must not overflow.
    const uint64_t x = static_cast<U>(a);
    const uint64_t y = static_cast<U>(b);
    return static_cast<A>(static_cast<U>(kOp == kSum ? x + y : x * y));
  }
}

}  // namespace covey::cuda
#endif  // COVEY_OPS_DEVICES_CUDA_ELEMENT_H_
