// bf16: the upper half of a float32, rounded to nearest even, or with random=1 at random, so that
// the expectation of an element is the element.
//
// Keeps the range of float32 and 8 bits of precision. 2 bytes per element, no blocks to speak of.
// Error: at most 2^-8 of the element's magnitude (half a unit in the last place is 2^-9 of it;
// below 2^-126, where numbers are spaced evenly, 2^-134); at random twice that. NaN stays NaN,
// infinity infinity; a number beyond the largest bfloat16 by half a unit becomes infinity, as in
// every cast; at random all that lies beyond it may.
//
// Source: D. Kalamkar, D. Mudigere, N. Mellempudi et al., 2019, A Study of BFLOAT16 for Deep
// Learning Training, doi:10.48550/arXiv.1905.12322.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/run/codec.h"
#include "ops/codecs/draw.h"
#include "ops/codecs/sets.h"

namespace covey {
namespace {

constexpr Reduction kCast{DType::kBF16, Op::kSum};

constexpr size_t kBlock = 64;

EncodedLayout Form(const CodecValues&) { return {.block_elems = kBlock, .elem_bits = 16}; }

bool Draws(const CodecValues& values) { return values[0] == 1; }

double Bound(const CodecValues& values, double largest_magnitude) {
  const double times = Draws(values) ? 2 : 1;
  if (largest_magnitude >= (Draws(values) ? 0x1.fep127 : 0x1.ffp127))
    return std::numeric_limits<double>::infinity();
  return times * std::max(largest_magnitude * 0x1p-8, 0x1p-134);
}

// The cut-off bits are the probability of going up: the sum carries with it.
[[gnu::always_inline]] inline void RoundAtRandom(std::span<const float> block, uint32_t seed,
                                                 std::byte* out) {
  for (size_t i = 0; i < block.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(block[i]);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint32_t up = bits + (Drawn(seed, static_cast<uint32_t>(i)) >> 16);
    const auto upper = static_cast<uint16_t>(is_nan ? 0x7fc0 : up >> 16);
    std::memcpy(out + 2 * i, &upper, sizeof(upper));
  }
}

[[gnu::always_inline]] inline void RoundBlocks(std::span<const float> elements, uint64_t seed,
                                               std::byte* out) {
  const auto drawn = static_cast<uint32_t>(seed ^ (seed >> 32));
  for (size_t at = 0; at < elements.size(); at += kBlock) {
    const auto block = elements.subspan(at, std::min(kBlock, elements.size() - at));
    RoundAtRandom(block, Drawn(drawn, static_cast<uint32_t>(at / kBlock)), out + 2 * at);
  }
}

void Encode(const Kernels& kernels, const CodecValues& values, std::span<const float> elements,
            uint64_t seed, std::byte* out) {
  if (Draws(values))
    RunOn(
        kernels, [&]() __attribute__((always_inline)) { RoundBlocks(elements, seed, out); });
  else
    kernels.finish(kCast, reinterpret_cast<const std::byte*>(elements.data()), out,
                   elements.size());
  std::fill(out + elements.size() * 2, out + Form(values).EncodedBytes(elements.size()),
            std::byte{0});
}

void Decode(const Kernels& kernels, const CodecValues&, const std::byte* in,
            std::span<float> elements) {
  kernels.begin(kCast, in, reinterpret_cast<std::byte*>(elements.data()), elements.size());
}

constexpr CodecParameter kParameters[] = {
    {.name = "random", .standard = 0, .minimum = 0, .maximum = 1, .multiple = 1}};
constexpr Codec kCodec{"bf16",
                       "2 bytes per element; error up to 2^-8 of the element, with random=1 2^-7 "
                       "and right in expectation; NaN stays NaN",
                       kParameters,
                       Form,
                       Bound,
                       Encode,
                       Decode,
                       Draws};
const CodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
