// int8: blocks of whole numbers from -127 to 127 times a scale, rounded to nearest even.
//
// A block is its scale (float32), largest magnitude / 127, then one byte per element: 1 + 4/block
// bytes per element, 1.016 with blocks of 256. Error: at most half a scale, that is 1/254 of the
// largest magnitude of the block, and the float32 rounding of two products (Bound below). Multiples
// of a power of two up to 127 times it, the largest among them, come back exactly.
//
// A block whose largest magnitude is below 2^-100 becomes zeros: its scale would leave float32. A
// block that holds a NaN or an infinity becomes NaN as a whole: an overflow must be seen.
//
// Source: T. Dettmers, M. Lewis, S. Shleifer, L. Zettlemoyer, 2022, 8-bit Optimizers via Block-wise
// Quantization, doi:10.48550/arXiv.2110.02861 (of which this is the linear variant).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/run/codec.h"
#include "ops/codecs/sets.h"

namespace covey {
namespace {

constexpr float kSteps = 127;
constexpr float kSmallest = 0x1p-100f;
// Added to a number up to 2^22, leaves it, rounded to nearest even, in the lowest bits.
constexpr float kRounder = 12582912;                  // 1.5 * 2^23
constexpr double kRoundsToInfinity = 0x1.ffffffp127;  // the least that is no float
constexpr uint32_t kInfinityBits = 0x7f800000;
constexpr size_t kHeaderBytes = sizeof(float);

EncodedLayout Form(const CodecValues& values) {
  return {.block_elems = static_cast<uint32_t>(values[0]),
          .header_bytes = kHeaderBytes,
          .elem_bits = 8};
}

double Bound(const CodecValues&, double largest_magnitude) {
  return std::max(largest_magnitude / 254 * (1 + 0x1p-14), double{kSmallest});
}

// The largest scale of which 127 do not overflow. In double, where the product is exact: GCC 14
// folds the comparison of a float product with the largest float to true.
float ScaleOf(float largest) {
  const float scale = largest / kSteps;
  return double{scale} * kSteps < kRoundsToInfinity ? scale : std::nextafter(scale, 0.0f);
}

[[gnu::always_inline]] inline void EncodeBlock(const float* elements, size_t count,
                                               std::byte* out) {
  int32_t largest_bits = 0;
  for (size_t i = 0; i < count; ++i)
    largest_bits = std::max(largest_bits, std::bit_cast<int32_t>(elements[i]) & 0x7fffffff);
  const auto largest = std::bit_cast<float>(largest_bits);
  const bool finite = static_cast<uint32_t>(largest_bits) < kInfinityBits;
  const bool coded = finite && largest >= kSmallest;
  const float scale = coded    ? ScaleOf(largest)
                      : finite ? 0.0f
                               : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(out, &scale, kHeaderBytes);
  out += kHeaderBytes;
  if (!coded) return std::fill(out, out + count, std::byte{0});
  const float inverse = kSteps / largest;
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::byte>(std::bit_cast<uint32_t>(elements[i] * inverse + kRounder));
}

[[gnu::always_inline]] inline void DecodeBlock(const std::byte* in, float* elements, size_t count) {
  float scale;
  std::memcpy(&scale, in, kHeaderBytes);
  in += kHeaderBytes;
  for (size_t i = 0; i < count; ++i)
    elements[i] = static_cast<float>(static_cast<int8_t>(in[i])) * scale;
}

[[gnu::always_inline]] inline void EncodeBlocks(const EncodedLayout& form,
                                                std::span<const float> elements, std::byte* out) {
  for (size_t at = 0; at < elements.size(); at += form.block_elems) {
    const size_t count = std::min<size_t>(form.block_elems, elements.size() - at);
    EncodeBlock(elements.data() + at, count, out);
    std::byte* end = out + form.BlockBytes(count);
    std::fill(out + kHeaderBytes + count, end, std::byte{0});
    out = end;
  }
}

[[gnu::always_inline]] inline void DecodeBlocks(const EncodedLayout& form, const std::byte* in,
                                                std::span<float> elements) {
  for (size_t at = 0; at < elements.size(); at += form.block_elems) {
    const size_t count = std::min<size_t>(form.block_elems, elements.size() - at);
    DecodeBlock(in, elements.data() + at, count);
    in += form.BlockBytes(count);
  }
}

void Encode(const Kernels& kernels, const CodecValues& values, std::span<const float> elements,
            uint64_t, std::byte* out) {
  const EncodedLayout form = Form(values);
  RunOn(
      kernels, [&]() __attribute__((always_inline)) { EncodeBlocks(form, elements, out); });
}

void Decode(const Kernels& kernels, const CodecValues& values, const std::byte* in,
            std::span<float> elements) {
  const EncodedLayout form = Form(values);
  RunOn(
      kernels, [&]() __attribute__((always_inline)) { DecodeBlocks(form, in, elements); });
}

constexpr CodecParameter kParameters[] = {
    {.name = "block", .standard = 256, .minimum = 16, .maximum = 65536, .multiple = 4}};
constexpr Codec kCodec{"int8",
                       "1 + 4/block bytes per element (block 256: 1.016); error up to 1/254 of the "
                       "block's largest magnitude; a block with a NaN or infinity becomes NaN",
                       kParameters,
                       Form,
                       Bound,
                       Encode,
                       Decode};
const CodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
