// fp16: half precision (IEEE 754 binary16), rounded to nearest even.
//
// 2 bytes per element. Error: at most 2^-11 of the element's magnitude, or 2^-25 where that is more
// (magnitudes below 2^-14). Magnitudes of 65520 and more become infinity, as in every cast: a
// gradient that overflows must be seen, not clamped. NaN stays NaN.
//
// Source: P. Micikevicius, S. Narang, J. Alben et al., 2018, Mixed Precision Training,
// doi:10.48550/arXiv.1710.03740.
#include <algorithm>
#include <limits>

#include "core/run/codec.h"

namespace covey {
namespace {

constexpr Reduction kCast{DType::kF16, Op::kSum};

EncodedLayout Form(const CodecValues&) { return {.block_elems = 64, .elem_bits = 16}; }

double Bound(const CodecValues&, double largest_magnitude) {
  if (largest_magnitude >= 65520) return std::numeric_limits<double>::infinity();
  return std::max(largest_magnitude * 0x1p-11, 0x1p-25);
}

void Encode(const Kernels& kernels, const CodecValues& values, std::span<const float> elements,
            uint64_t, std::byte* out) {
  kernels.finish(kCast, reinterpret_cast<const std::byte*>(elements.data()), out, elements.size());
  std::fill(out + elements.size() * 2, out + Form(values).EncodedBytes(elements.size()),
            std::byte{0});
}

void Decode(const Kernels& kernels, const CodecValues&, const std::byte* in,
            std::span<float> elements) {
  kernels.begin(kCast, in, reinterpret_cast<std::byte*>(elements.data()), elements.size());
}

constexpr Codec kCodec{"fp16",
                       "2 bytes per element; error up to 2^-11 of the element or 2^-25; 65520 and "
                       "more become infinity; NaN stays NaN",
                       {},
                       Form,
                       Bound,
                       Encode,
                       Decode};
const CodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
