// Vectors of any instruction set: loads and stores, how a dtype is stored and computed, operators.
//
// Included by leaves-inl.h, x86-inl.h and f16c-inl.h. Everything sits in an unnamed namespace: the
// same template compiled with other flags must stay another function. Vectors are those of the
// compiler (GCC, Clang), so an operator is an operator. An Isa adds what has none (L is kBytes / 4
// lanes):
//   kBytes                                       bytes of a vector
//   Vec<float, L> HalfToFloat(Vec<uint16_t, L>)  of float16
//   Vec<uint16_t, L> FloatToHalf(Vec<float, L>)  to nearest even, the canonical NaN to 0x7e00
//   Vec<uint32_t, L> Extend(Vec<uint16_t, L>)
//   Vec<uint16_t, L> Truncate(Vec<uint32_t, L>)  REQUIRES: the values fit
//   Stream(std::byte* to, V v)                   a store past the cache; `to` is aligned to V
//   EndStream()                                  later stores of this thread come after those
//   Small                                        the Isa of the same processor with kBytes = 16
#ifndef COVEY_OPS_KERNELS_VECTORS_INL_H_
#define COVEY_OPS_KERNELS_VECTORS_INL_H_

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace covey {
namespace {

template <class T, size_t kLanes>
struct VecOf {
  typedef T Type __attribute__((vector_size(sizeof(T) * kLanes)));  // NOLINT
};
template <class T, size_t kLanes>
using Vec = typename VecOf<T, kLanes>::Type;

// ---- Memory -------------------------------------------------------------------------------------

template <class V>
[[gnu::always_inline]] inline V Load(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}

template <class V>
[[gnu::always_inline]] inline void Store(std::byte* to, V v) {
  __builtin_memcpy(to, &v, sizeof(V));
}

// Two overlapping loads as one number. REQUIRES: sizeof(T) <= length_bytes < 2 * sizeof(T).
template <class T>
[[gnu::always_inline]] inline uint64_t LoadEnds(const std::byte* from, size_t length_bytes) {
  const uint64_t low = Load<T>(from);
  const uint64_t high = Load<T>(from + length_bytes - sizeof(T));
  return low | high << (8 * (length_bytes - sizeof(T)));
}

// The first length_bytes < sizeof(V) of a vector of 8 or 16 bytes, the others zero. Put together in
// registers: a vector loaded from a buffer just filled in pieces waits for all of them to reach the
// cache.
template <class V>
[[gnu::always_inline]] inline V LoadPart(const std::byte* from, size_t length_bytes) {
  static_assert(sizeof(V) == 8 || sizeof(V) == 16);
  uint64_t low = 0;
  uint64_t high = 0;
  if (length_bytes > 8) {
    low = Load<uint64_t>(from);
    high = Load<uint64_t>(from + length_bytes - 8) >> (8 * (16 - length_bytes));
  } else if (length_bytes == 8) {
    low = Load<uint64_t>(from);
  } else if (length_bytes >= 4) {
    low = LoadEnds<uint32_t>(from, length_bytes);
  } else if (length_bytes >= 2) {
    low = LoadEnds<uint16_t>(from, length_bytes);
  } else if (length_bytes == 1) {
    low = Load<uint8_t>(from);
  }
  if constexpr (sizeof(V) == 8) {
    return reinterpret_cast<V>(Vec<uint64_t, 1>{low});
  } else {
    return reinterpret_cast<V>(Vec<uint64_t, 2>{low, high});
  }
}

// The opposite of LoadPart.
template <class V>
[[gnu::always_inline]] inline void StorePart(std::byte* to, V v, size_t length_bytes) {
  const auto words = reinterpret_cast<Vec<uint64_t, sizeof(V) / 8>>(v);
  uint64_t word = words[0];
  size_t at = 0;
  if (length_bytes >= 8) {
    Store(to, word);
    at = 8;
    if constexpr (sizeof(V) == 16) word = words[1];
  }
  if ((length_bytes & 4) != 0) {
    Store(to + at, static_cast<uint32_t>(word));
    word >>= 32;
    at += 4;
  }
  if ((length_bytes & 2) != 0) {
    Store(to + at, static_cast<uint16_t>(word));
    word >>= 16;
    at += 2;
  }
  if ((length_bytes & 1) != 0) Store(to + at, static_cast<uint8_t>(word));
}

// ---- Elements: how a dtype is stored and the type it is computed in -----------------------------

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

template <class Isa, class T>
struct Element {
  using Acc = T;
  static constexpr size_t kLanes = Isa::kBytes / sizeof(T);
  using Stored = Vec<T, kLanes>;
  [[gnu::always_inline]] static Stored Widen(Stored v) { return v; }
  [[gnu::always_inline]] static Stored Narrow(Stored v) { return v; }
};

template <class Isa>
struct Element<Isa, F16> {
  using Acc = float;
  static constexpr size_t kLanes = Isa::kBytes / sizeof(float);
  using Stored = Vec<uint16_t, kLanes>;
  [[gnu::always_inline]] static Vec<float, kLanes> Widen(Stored v) { return Isa::HalfToFloat(v); }
  [[gnu::always_inline]] static Stored Narrow(Vec<float, kLanes> v) { return Isa::FloatToHalf(v); }
};

template <class Isa>
struct Element<Isa, BF16> {
  using Acc = float;
  static constexpr size_t kLanes = Isa::kBytes / sizeof(float);
  using Stored = Vec<uint16_t, kLanes>;
  using Bits = Vec<uint32_t, kLanes>;
  [[gnu::always_inline]] static Vec<float, kLanes> Widen(Stored v) {
    return reinterpret_cast<Vec<float, kLanes>>(Isa::Extend(v) << 16);
  }
  // Rounds to nearest even. A NaN is already the canonical one, which this leaves a NaN.
  [[gnu::always_inline]] static Stored Narrow(Vec<float, kLanes> v) {
    const Bits bits = reinterpret_cast<Bits>(v);
    return Isa::Truncate((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// ---- Operators ----------------------------------------------------------------------------------

template <class T>
inline constexpr bool kIsFloat = static_cast<T>(0.5) != static_cast<T>(0);

template <class T>
struct UnsignedOf {
  using Type = T;
};
template <>
struct UnsignedOf<int8_t> {
  using Type = uint8_t;
};
template <>
struct UnsignedOf<int16_t> {
  using Type = uint16_t;
};
template <>
struct UnsignedOf<int32_t> {
  using Type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using Type = uint64_t;
};

template <Op kOp, class T, size_t kLanes>
[[gnu::always_inline]] inline Vec<T, kLanes> Apply(Vec<T, kLanes> a, Vec<T, kLanes> b) {
  using V = Vec<T, kLanes>;
  using Wrapping = Vec<typename UnsignedOf<T>::Type, kLanes>;
  if constexpr (kOp == Op::kSum) {
    return reinterpret_cast<V>(reinterpret_cast<Wrapping>(a) + reinterpret_cast<Wrapping>(b));
  } else if constexpr (kOp == Op::kProduct) {
    return reinterpret_cast<V>(reinterpret_cast<Wrapping>(a) * reinterpret_cast<Wrapping>(b));
  } else {
    const V chosen = kOp == Op::kMin ? (a < b ? a : b) : (a > b ? a : b);
    if constexpr (kIsFloat<T>) {
      return a == a ? chosen : a;  // a NaN in b was chosen, one in a was not
    } else {
      return chosen;
    }
  }
}

// Every NaN becomes the one of kernels-K6.
template <class T, size_t kLanes>
[[gnu::always_inline]] inline Vec<T, kLanes> Canonical(Vec<T, kLanes> v) {
  if constexpr (kIsFloat<T>) {
    return v == v ? v : static_cast<T>(__builtin_nanf("")) - Vec<T, kLanes>{};
  } else {
    return v;
  }
}

template <class T, size_t kLanes>
[[gnu::always_inline]] inline Vec<T, kLanes> Broadcast(double value) {
  return static_cast<T>(value) - Vec<T, kLanes>{};
}

}  // namespace
}  // namespace covey
#endif  // COVEY_OPS_KERNELS_VECTORS_INL_H_
