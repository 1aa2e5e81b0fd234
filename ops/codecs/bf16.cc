// bf16: the upper half of a float32, rounded to nearest even.
//
// Keeps the range of float32 and 8 bits of precision. 2 bytes per element, no blocks to speak of.
// Error: at most 2^-8 of the element's magnitude (half a unit in the last place is 2^-9 of it;
// below 2^-126, where numbers are spaced evenly, 2^-134). NaN stays NaN, infinity infinity; what
// lies beyond the largest bfloat16 by half a unit becomes infinity, as in every cast.
//
// Source: D. Kalamkar, D. Mudigere, N. Mellempudi et al., 2019, A Study of BFLOAT16 for Deep
// Learning Training, doi:10.48550/arXiv.1905.12322.
#include <algorithm>
#include <limits>

#include "core/run/codec.h"

namespace covey {
namespace {

constexpr Reduction kCast{DType::kBF16, Op::kSum};

CodedForm Form(const CodecValues&) { return {.block_elems = 64, .elem_bits = 16}; }

double Bound(const CodecValues&, double largest_magnitude) {
  if (largest_magnitude >= 0x1.ffp127) return std::numeric_limits<double>::infinity();
  return std::max(largest_magnitude * 0x1p-8, 0x1p-134);
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

constexpr Codec kCodec{
    "bf16", "2 bytes per element; error up to 2^-8 of the element; NaN stays NaN",
    {},     Form,
    Bound,  Encode,
    Decode};
const CodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
