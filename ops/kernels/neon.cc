// Kernels for aarch64: every such processor has NEON, with conversions of half precision.
#include <arm_neon.h>

#include "ops/kernels/leaves-inl.h"

namespace covey {
namespace {

struct Neon {
  static constexpr size_t kBytes = 16;
  using Small = Neon;
  [[gnu::always_inline]] static Vec<float, 4> HalfToFloat(Vec<uint16_t, 4> v) {
    return reinterpret_cast<Vec<float, 4>>(vcvt_f32_f16(reinterpret_cast<float16x4_t>(v)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 4> FloatToHalf(Vec<float, 4> v) {
    return reinterpret_cast<Vec<uint16_t, 4>>(vcvt_f16_f32(reinterpret_cast<float32x4_t>(v)));
  }
  [[gnu::always_inline]] static Vec<uint32_t, 4> Extend(Vec<uint16_t, 4> v) {
    return reinterpret_cast<Vec<uint32_t, 4>>(vmovl_u16(reinterpret_cast<uint16x4_t>(v)));
  }
  [[gnu::always_inline]] static Vec<uint16_t, 4> Truncate(Vec<uint32_t, 4> v) {
    return reinterpret_cast<Vec<uint16_t, 4>>(vmovn_u32(reinterpret_cast<uint32x4_t>(v)));
  }
  // Whole lines written in order are no reason for these processors to read them first. A store
  // with a hint (stnp) is ordered as any other, so nothing has to end.
  template <class V>
  [[gnu::always_inline]] static void Stream(std::byte* to, V v) {
    Store(to, v);
  }
  [[gnu::always_inline]] static void EndStream() {}
};

}  // namespace

constinit const Leaves kNeonLeaves = MakeLeaves<Neon>();

}  // namespace covey
