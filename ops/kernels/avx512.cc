// Kernels for processors with AVX-512 F, BW, DQ and VL. Compiled with a flag for each of them and
// -mf16c.
#include "ops/kernels/f16c-inl.h"
#include "ops/kernels/leaves-inl.h"

namespace covey {
namespace {

struct Avx512 : X86Stores {
  static constexpr size_t kBytes = 64;
  using Small = F16cSmall;
  // GCC 12 takes the undefined vector inside the forms without a mask for an error of ours.
  static constexpr __mmask16 kAll = 0xffff;
  [[gnu::always_inline]] static Vec<float, 16> HalfToFloat(Vec<uint16_t, 16> v) {
    return _mm512_maskz_cvtph_ps(kAll, reinterpret_cast<__m256i>(v));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 16> FloatToHalf(Vec<float, 16> v) {
    return reinterpret_cast<Vec<uint16_t, 16>>(
        _mm512_maskz_cvtps_ph(kAll, v, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static Vec<uint32_t, 16> Extend(Vec<uint16_t, 16> v) {
    return reinterpret_cast<Vec<uint32_t, 16>>(
        _mm512_maskz_cvtepu16_epi32(kAll, reinterpret_cast<__m256i>(v)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 16> Truncate(Vec<uint32_t, 16> v) {
    return reinterpret_cast<Vec<uint16_t, 16>>(
        _mm512_maskz_cvtepi32_epi16(kAll, reinterpret_cast<__m512i>(v)));
  }
};

}  // namespace

constinit const Leaves kAvx512Leaves = MakeLeaves<Avx512>();

}  // namespace covey
