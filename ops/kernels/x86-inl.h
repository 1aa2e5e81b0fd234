// Stores past the cache on x86-64: a base of every Isa of sse4.cc, avx2.cc and avx512.cc.
#ifndef COVEY_OPS_KERNELS_X86_INL_H_
#define COVEY_OPS_KERNELS_X86_INL_H_

#include <immintrin.h>

#include <cstddef>

#include "ops/kernels/vectors-inl.h"

namespace covey {
namespace {

struct X86Stores {
  template <class V>
  [[gnu::always_inline]] static void Stream(std::byte* to, V v) {
    if constexpr (sizeof(V) == 64) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(v));
    } else if constexpr (sizeof(V) == 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(v));
    } else if constexpr (sizeof(V) == 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(v));
    } else {
      static_assert(sizeof(V) == 8);
      _mm_stream_si64(reinterpret_cast<long long*>(to), reinterpret_cast<long long>(v));
    }
  }
  [[gnu::always_inline]] static void EndStream() { _mm_sfence(); }
};

}  // namespace
}  // namespace covey
#endif  // COVEY_OPS_KERNELS_X86_INL_H_
