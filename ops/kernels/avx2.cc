// Kernels for processors with AVX2 and F16C. Compiled with -mavx2 -mf16c.
#include "ops/kernels/f16c-inl.h"
#include "ops/kernels/leaves-inl.h"

namespace covey {
namespace {

struct Avx2 : X86Stores {
  static constexpr size_t kBytes = 32;
  using Small = F16cSmall;
  [[gnu::always_inline]] static Vec<float, 8> HalfToFloat(Vec<uint16_t, 8> v) {
    return _mm256_cvtph_ps(reinterpret_cast<__m128i>(v));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 8> FloatToHalf(Vec<float, 8> v) {
    return reinterpret_cast<Vec<uint16_t, 8>>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static Vec<uint32_t, 8> Extend(Vec<uint16_t, 8> v) {
    return reinterpret_cast<Vec<uint32_t, 8>>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(v)));
  }
  // The halves of a pack stay in their 128-bit lanes: the permutation brings them together.
  [[gnu::always_inline]] static Vec<uint16_t, 8> Truncate(Vec<uint32_t, 8> v) {
    const auto words = reinterpret_cast<__m256i>(v);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return reinterpret_cast<Vec<uint16_t, 8>>(_mm256_castsi256_si128(packed));
  }
};

}  // namespace

constinit const Leaves kAvx2Leaves = MakeLeaves<Avx2>();

}  // namespace covey
