// Kernels for processors with SSE4.1 only, which have no instruction for half precision. Compiled
// with -msse4.1.
#include "ops/kernels/leaves-inl.h"
#include "ops/kernels/x86-inl.h"

namespace covey {
namespace {

using F32x4 = Vec<float, 4>;
using U32x4 = Vec<uint32_t, 4>;
using U16x4 = Vec<uint16_t, 4>;

// The conversions are Fabian Giesen's ("half_to_float_fast5", "float_to_half_fast3_rtne", 2012): a
// subnormal is shifted into place by a float addition. Exact for every bit pattern; the test
// compares all of them.
struct Sse4 : X86Stores {
  static constexpr size_t kBytes = 16;
  using Small = Sse4;

  [[gnu::always_inline]] static U32x4 Extend(U16x4 v) {
    return reinterpret_cast<U32x4>(
        _mm_cvtepu16_epi32(_mm_cvtsi64_si128(reinterpret_cast<long long>(v))));
  }

  [[gnu::always_inline]] static U16x4 Truncate(U32x4 v) {
    const auto words = reinterpret_cast<__m128i>(v);
    return reinterpret_cast<U16x4>(_mm_cvtsi128_si64(_mm_packus_epi32(words, words)));
  }

  [[gnu::always_inline]] static F32x4 HalfToFloat(U16x4 v) {
    const U32x4 half = Extend(v);
    const U32x4 magnitude = (half & 0x7fff) << 13;
    const U32x4 exponent = magnitude & (0x7c00u << 13);
    const U32x4 normal = magnitude + ((127u - 15u) << 23);
    const U32x4 special = magnitude + ((255u - 31u) << 23);
    const U32x4 least_normal = U32x4{} + (113u << 23);  // 2^-14
    const U32x4 subnormal = reinterpret_cast<U32x4>(
        reinterpret_cast<F32x4>(magnitude + least_normal) - reinterpret_cast<F32x4>(least_normal));
    const U32x4 finite = exponent == 0 ? subnormal : normal;
    const U32x4 value = exponent == (0x7c00u << 13) ? special : finite;
    return reinterpret_cast<F32x4>(value | ((half & 0x8000) << 16));
  }

  // A NaN is the canonical one.
  [[gnu::always_inline]] static U16x4 FloatToHalf(F32x4 v) {
    const U32x4 bits = reinterpret_cast<U32x4>(v);
    const U32x4 sign = bits & 0x80000000u;
    const U32x4 magnitude = bits ^ sign;
    const U32x4 rounder = U32x4{} + ((127u - 15u + 23u - 10u + 1u) << 23);  // 0.5
    const U32x4 subnormal = reinterpret_cast<U32x4>(reinterpret_cast<F32x4>(magnitude) +
                                                    reinterpret_cast<F32x4>(rounder)) -
                            rounder;
    const U32x4 odd = (magnitude >> 13) & 1;
    const U32x4 normal = (magnitude - ((127u - 15u) << 23) + 0xfff + odd) >> 13;
    const U32x4 finite = magnitude < (113u << 23) ? subnormal : normal;
    const U32x4 infinite = magnitude > 0x7f800000u ? U32x4{} + 0x7e00 : U32x4{} + 0x7c00;
    const U32x4 value = magnitude >= (143u << 23) ? infinite : finite;  // 2^16
    return Truncate(value | (sign >> 16));
  }
};

}  // namespace

constinit const Leaves kSse4Leaves = MakeLeaves<Sse4>();

}  // namespace covey
