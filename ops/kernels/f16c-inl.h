// Vectors of 16 bytes on processors with F16C: the Small of avx2.cc and avx512.cc (vectors-inl.h).
#ifndef COVEY_OPS_KERNELS_F16C_INL_H_
#define COVEY_OPS_KERNELS_F16C_INL_H_

#include "ops/kernels/x86-inl.h"

namespace covey {
namespace {

struct F16cSmall : X86Stores {
  static constexpr size_t kBytes = 16;
  using Small = F16cSmall;
  [[gnu::always_inline]] static __m128i Lower(Vec<uint16_t, 4> v) {
    return _mm_cvtsi64_si128(reinterpret_cast<long long>(v));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 4> Lower(__m128i v) {
    return reinterpret_cast<Vec<uint16_t, 4>>(_mm_cvtsi128_si64(v));
  }
  [[gnu::always_inline]] static Vec<float, 4> HalfToFloat(Vec<uint16_t, 4> v) {
    return _mm_cvtph_ps(Lower(v));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 4> FloatToHalf(Vec<float, 4> v) {
    return Lower(_mm_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static Vec<uint32_t, 4> Extend(Vec<uint16_t, 4> v) {
    return reinterpret_cast<Vec<uint32_t, 4>>(_mm_cvtepu16_epi32(Lower(v)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 4> Truncate(Vec<uint32_t, 4> v) {
    const auto words = reinterpret_cast<__m128i>(v);
    return Lower(_mm_packus_epi32(words, words));
  }
};

}  // namespace
}  // namespace covey
#endif  // COVEY_OPS_KERNELS_F16C_INL_H_
