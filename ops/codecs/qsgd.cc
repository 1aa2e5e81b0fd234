// qsgd: blocks of whole numbers from -s to s times norm / s, rounded at random so that the
// expectation of an element is the element (QSGD with s levels and buckets).
//
// s = 2^(bits-1) - 1, the most that fits `bits` with its sign. A block is its Euclidean norm
// (float32), then bits/8 bytes per element: 1 + 4/block with 8 bits, 0.5 + 4/block with 4, where
// byte i holds elements i and i + half of the block. An element x becomes floor(x s / norm + u), u
// drawn from [0, 1) by the seed, so: its error is below norm / s; E[decoded] = x;
// E||decoded - x||^2 <= min(d / s^2, sqrt(d) / s) ||x||^2 for blocks of d elements. u has 16 bits:
// expectations are right to 2^-17 of a level.
//
// A block whose largest magnitude is below 2^-100 becomes zeros. A block that holds a NaN or an
// infinity, or whose norm is beyond float32, becomes NaN as a whole: an overflow must be seen.
//
// Source: D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, 2017, QSGD:
// Communication-Efficient SGD via Gradient Quantization and Encoding, NeurIPS 30,
// doi:10.48550/arXiv.1610.02132. Numbers have a fixed width here, not an Elias code.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/run/codec.h"
#include "ops/codecs/draw.h"
#include "ops/codecs/sets.h"

namespace covey {
namespace {

constexpr float kSmallest = 0x1p-100f;
// Added to a number up to 2^22, leaves it, rounded to nearest even, in the lowest bits.
constexpr float kRounder = 12582912;  // 1.5 * 2^23
constexpr uint32_t kInfinityBits = 0x7f800000;
constexpr size_t kHeaderBytes = sizeof(float);
constexpr size_t kLanes = 16;  // of the sum of squares: its order is the same on every machine

EncodedLayout Form(const CodecValues& values) {
  return {.block_elems = static_cast<uint32_t>(values[1]),
          .header_bytes = kHeaderBytes,
          .elem_bits = static_cast<uint32_t>(values[0])};
}

constexpr float Levels(uint32_t bits) { return static_cast<float>((1 << (bits - 1)) - 1); }

double Bound(const CodecValues& values, double largest_magnitude) {
  const double norm = largest_magnitude * std::sqrt(static_cast<double>(values[1])) * (1 + 0x1p-10);
  if (norm >= static_cast<double>(std::numeric_limits<float>::max()))
    return std::numeric_limits<double>::infinity();
  const auto levels = static_cast<double>(Levels(static_cast<uint32_t>(values[0])));
  return std::max(norm / levels, static_cast<double>(kSmallest));
}

// 0 for a block that becomes zeros, NaN for one that cannot be coded.
[[gnu::always_inline]] inline float NormOf(const float* elements, size_t count) {
  int32_t largest_bits = 0;
  for (size_t i = 0; i < count; ++i)
    largest_bits = std::max(largest_bits, std::bit_cast<int32_t>(elements[i]) & 0x7fffffff);
  const auto largest = static_cast<uint32_t>(largest_bits);
  if (largest >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
  if (std::bit_cast<float>(largest) < kSmallest) return 0;
  // A power of two that brings the largest to 1 or 2: squares stay in float32.
  const auto small =
      std::bit_cast<float>(std::max(0x7f000000 - (largest & kInfinityBits), 1u << 23));
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float element = elements[i + lane] * small;
      lanes[lane] += element * element;
    }
  for (size_t lane = 0; i < count; ++i, ++lane) {
    const float element = elements[i] * small;
    lanes[lane] += element * element;
  }
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  const auto norm = static_cast<float>(std::sqrt(sum) / static_cast<double>(small));
  return std::isfinite(norm) ? norm : std::numeric_limits<float>::quiet_NaN();
}

// In (-1/2, 1/2), of 2^16 values.
[[gnu::always_inline]] inline float DrawnHalf(uint32_t seed, uint32_t place) {
  const auto z = static_cast<int32_t>(Drawn(seed, place));
  return static_cast<float>(z >> 16) * 0x1p-16f + 0x1p-17f;
}

// How the elements of a block become numbers.
struct Rounding {
  float inverse;  // s / norm
  float levels;   // s
  uint32_t seed;

  [[gnu::always_inline]] uint32_t NumberOf(float element, size_t place) const {
    const float exact = std::min(std::max(element * inverse, -levels), levels);
    const float drawn = DrawnHalf(seed, static_cast<uint32_t>(place));
    return std::bit_cast<uint32_t>(exact + drawn + kRounder);
  }
};

template <uint32_t kBits>
[[gnu::always_inline]] inline void WriteNumbers(const float* elements, size_t count,
                                                const Rounding& by, std::byte* out) {
  if constexpr (kBits == 8) {
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(by.NumberOf(elements[i], i));
    return;
  }
  const size_t half = (count + 1) / 2;
  for (size_t i = 0; i < count / 2; ++i)
    out[i] = static_cast<std::byte>((by.NumberOf(elements[i], i) & 15) |
                                    by.NumberOf(elements[half + i], half + i) << 4);
  if (count % 2 == 1)
    out[half - 1] = static_cast<std::byte>(by.NumberOf(elements[half - 1], half - 1) & 15);
}

template <uint32_t kBits>
[[gnu::always_inline]] inline void ReadNumbers(const std::byte* in, float scale, float* elements,
                                               size_t count) {
  if constexpr (kBits == 8) {
    for (size_t i = 0; i < count; ++i)
      elements[i] = static_cast<float>(static_cast<int8_t>(in[i])) * scale;
    return;
  }
  const size_t half = (count + 1) / 2;
  for (size_t i = 0; i < half; ++i) {
    const auto low = static_cast<int32_t>(static_cast<uint32_t>(in[i]) << 28) >> 28;
    elements[i] = static_cast<float>(low) * scale;
  }
  for (size_t i = 0; i < count / 2; ++i)
    elements[half + i] = static_cast<float>(static_cast<int8_t>(in[i]) >> 4) * scale;
}

template <uint32_t kBits>
[[gnu::always_inline]] inline void EncodeBlock(const float* elements, size_t count, uint32_t seed,
                                               std::byte* out) {
  const float norm = NormOf(elements, count);
  std::memcpy(out, &norm, kHeaderBytes);
  out += kHeaderBytes;
  if (!(norm > 0)) {
    std::fill_n(out, (count * kBits + 7) / 8, std::byte{0});
    return;
  }
  const Rounding by{.inverse = Levels(kBits) / norm, .levels = Levels(kBits), .seed = seed};
  WriteNumbers<kBits>(elements, count, by, out);
}

template <uint32_t kBits>
[[gnu::always_inline]] inline void EncodeBlocks(const EncodedLayout& form,
                                                std::span<const float> elements, uint64_t seed,
                                                std::byte* out) {
  const auto drawn = static_cast<uint32_t>(seed ^ (seed >> 32));
  for (size_t at = 0; at < elements.size(); at += form.block_elems) {
    const size_t count = std::min<size_t>(form.block_elems, elements.size() - at);
    const auto number = static_cast<uint32_t>(at / form.block_elems);
    EncodeBlock<kBits>(elements.data() + at, count, Drawn(drawn, number), out);
    std::byte* end = out + form.BlockBytes(count);
    std::fill(out + kHeaderBytes + (count * kBits + 7) / 8, end, std::byte{0});
    out = end;
  }
}

template <uint32_t kBits>
[[gnu::always_inline]] inline void DecodeBlocks(const EncodedLayout& form, const std::byte* in,
                                                std::span<float> elements) {
  for (size_t at = 0; at < elements.size(); at += form.block_elems) {
    const size_t count = std::min<size_t>(form.block_elems, elements.size() - at);
    float norm = 0;
    std::memcpy(&norm, in, kHeaderBytes);
    ReadNumbers<kBits>(in + kHeaderBytes, norm / Levels(kBits), elements.data() + at, count);
    in += form.BlockBytes(count);
  }
}

// Calls fn.operator()<bits>(): loops know how wide a number is.
template <typename Fn>
void WithBits(uint32_t bits, Fn fn) {
  if (bits == 8) return fn.template operator()<8>();
  fn.template operator()<4>();
}

void Encode(const Kernels& kernels, const CodecValues& values, std::span<const float> elements,
            uint64_t seed, std::byte* out) {
  const EncodedLayout form = Form(values);
  WithBits(form.elem_bits, [&]<uint32_t kBits>() {
    RunOn(
        kernels, [&]() __attribute__((always_inline)) {
          EncodeBlocks<kBits>(form, elements, seed, out);
        });
  });
}

void Decode(const Kernels& kernels, const CodecValues& values, const std::byte* in,
            std::span<float> elements) {
  const EncodedLayout form = Form(values);
  WithBits(form.elem_bits, [&]<uint32_t kBits>() {
    RunOn(
        kernels, [&]() __attribute__((always_inline)) { DecodeBlocks<kBits>(form, in, elements); });
  });
}

// A number of a model is about norm / sqrt(block).
const char* UnfitForModels(const CodecValues& values) {
  const double steps = 4 * std::sqrt(static_cast<double>(values[1]));
  if (steps <= static_cast<double>(Levels(static_cast<uint32_t>(values[0])))) return "";
  return "rounds to steps of the norm of a block / (2^(bits-1) - 1), which are too coarse for "
         "models as they are: more than a quarter of what their numbers are about, but with 8 bits "
         "and a block of at most 1008";
}

constexpr CodecParameter kParameters[] = {
    {.name = "bits", .standard = 8, .minimum = 4, .maximum = 8, .multiple = 4},
    {.name = "block", .standard = 512, .minimum = 16, .maximum = 65536, .multiple = 4}};
constexpr Codec kCodec{
    "qsgd",
    "bits/8 + 4/block bytes per element (1.008); right in expectation, error up to the block's "
    "norm / (2^(bits-1) - 1); a block with a NaN or infinity becomes NaN",
    kParameters,
    Form,
    Bound,
    Encode,
    Decode,
    [](const CodecValues&) { return true; },
    UnfitForModels};
const CodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
