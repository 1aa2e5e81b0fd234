#include "ops/codecs/lattice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ops/codecs/draw.h"
#include "ops/codecs/sets.h"

namespace covey {
namespace {

constexpr size_t kHeaderBytes = 16;
constexpr size_t kMaxChunk = 1024;
constexpr double kLargest = 0x1p50;  // of x / step, so that it and its addend are exact
// Added to a number up to 2^50, leaves it, rounded to nearest even, in the lowest bits.
constexpr double kRounder = 0x1.8p52;
constexpr auto kRounderBits = std::bit_cast<int64_t>(kRounder);

constexpr size_t kLeastBits = 2, kMostBits = 16;

using Codes = std::array<uint16_t, kMaxChunk>;

constexpr uint64_t Mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The odd number of each place.
constexpr std::array<uint64_t, kMaxChunk> OddNumbers() {
  std::array<uint64_t, kMaxChunk> odd{};
  for (size_t i = 0; i < kMaxChunk; ++i) odd[i] = Mixed(i * 0x9e3779b97f4a7c15u + 1) | 1;
  return odd;
}
constexpr std::array<uint64_t, kMaxChunk> kOdd = OddNumbers();

static_assert(std::endian::native == std::endian::little);

// Codes travel in groups of eight: as many bytes as a code has bits.
constexpr size_t kGroup = 8;
static_assert(kMaxChunk % kGroup == 0);

// Calls function(group, bytes of the group) for each group of `count` codes; the last one may be
// cut off.
template <size_t kBits, typename Function>
[[gnu::always_inline]] inline void ForGroups(size_t count, const Function& function) {
  const size_t whole = count / kGroup;
  for (size_t i = 0; i < whole; ++i) function(i, kBits);
  if (count % kGroup > 0) function(whole, (count % kGroup * kBits + 7) / 8);
}

// REQUIRES: codes after the last one of the last group are 0.
template <size_t kBits>
void PackAs(const uint16_t* codes, size_t count, std::byte* out) {
  ForGroups<kBits>(
      count, [&](size_t group, size_t length) __attribute__((always_inline)) {
        std::array<uint64_t, 2> word{};
        const uint16_t* own = codes + group * kGroup;
        for (size_t i = 0; i < kGroup; ++i) {
          const size_t at = i * kBits, in_word = at % 64;
          word[at / 64] |= uint64_t{own[i]} << in_word;
          if (in_word + kBits > 64) word[1] |= uint64_t{own[i]} >> (64 - in_word);
        }
        std::memcpy(out + group * kBits, word.data(), length);
      });
}

template <size_t kBits>
void UnpackAs(const std::byte* in, size_t count, uint16_t* codes) {
  ForGroups<kBits>(
      count, [&](size_t group, size_t length) __attribute__((always_inline)) {
        std::array<uint64_t, 2> word{};
        std::memcpy(word.data(), in + group * kBits, length);
        uint16_t* own = codes + group * kGroup;
        for (size_t i = 0; i < kGroup; ++i) {
          const size_t at = i * kBits, in_word = at % 64;
          uint64_t value = word[at / 64] >> in_word;
          if (in_word + kBits > 64) value |= word[1] << (64 - in_word);
          own[i] = static_cast<uint16_t>(value & ((uint64_t{1} << kBits) - 1));
        }
      });
}

struct Packing {
  void (*pack)(const uint16_t* codes, size_t count, std::byte* out);
  void (*unpack)(const std::byte* in, size_t count, uint16_t* codes);
};

template <size_t... kBits>
constexpr std::array<Packing, sizeof...(kBits)> Packings(std::index_sequence<kBits...>) {
  return {Packing{PackAs<kLeastBits + kBits>, UnpackAs<kLeastBits + kBits>}...};
}

// The functions for codes of so many bits.
const Packing& PackingOf(int bits) {
  static constexpr auto kPackings =
      Packings(std::make_index_sequence<kMostBits - kLeastBits + 1>());
  return kPackings[static_cast<size_t>(bits) - kLeastBits];
}

// The findings of the loops in a chunk beside their output.
struct Found {
  uint64_t hash = 0;
  int64_t largest_bits = 0;   // of |x / step|, as a float64: they are ordered as these are
  int64_t distance_bits = 0;  // of |k - reference / step|
};

bool IsWithin(int64_t bits, double limit) { return bits < std::bit_cast<int64_t>(limit); }

[[gnu::always_inline]] inline int64_t MagnitudeBits(double number) {
  return std::bit_cast<int64_t>(number) & INT64_MAX;
}

// x to codes.
[[gnu::always_inline]] inline Found Round(const float* x, size_t count, double inverse,
                                          uint32_t seed, uint16_t mask, uint16_t* codes) {
  Found found;
  for (size_t i = 0; i < count; ++i) {
    const double scaled = static_cast<double>(x[i]) * inverse;
    found.largest_bits = std::max(found.largest_bits, MagnitudeBits(scaled));
    // In [-1/2, 1/2): rounding to nearest then goes up with the probability of what is cut off.
    const double drawn =
        static_cast<double>(static_cast<int32_t>(Drawn(seed, static_cast<uint32_t>(i)))) * 0x1p-32;
    const int64_t k = std::bit_cast<int64_t>(scaled + drawn + kRounder) - kRounderBits;
    found.hash += static_cast<uint64_t>(k) * kOdd[i];
    codes[i] = static_cast<uint16_t>(k) & mask;
  }
  return found;
}

// Codes to the numbers nearest to the references.
[[gnu::always_inline]] inline Found Near(const uint16_t* codes, const float* reference,
                                         size_t count, double step, double inverse, double q,
                                         float* to) {
  Found found;
  const double one_of_q = 1 / q;  // exact: a power of two
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const double near = static_cast<double>(reference[i]) * inverse;
    found.largest_bits = std::max(found.largest_bits, MagnitudeBits(near));
    const auto code = static_cast<double>(codes[i]);
    const double times = ((near - code) * one_of_q + kRounder) - kRounder;
    const double k = code + q * times;
    const int64_t number = std::bit_cast<int64_t>(k + kRounder) - kRounderBits;
    found.hash += static_cast<uint64_t>(number) * kOdd[i];
    found.distance_bits = std::max(found.distance_bits, MagnitudeBits(k - near));
    to[i] = static_cast<float>(k * step);
  }
  return found;
}

}  // namespace

size_t LatticeForm::ChunkBytes(size_t count) const {
  return kHeaderBytes + (count * static_cast<size_t>(bits) + 7) / 8;
}

size_t LatticeForm::EncodedBytes(size_t count) const {
  const size_t whole = count / chunk_elems, rest = count % chunk_elems;
  return whole * ChunkBytes(chunk_elems) + (rest > 0 ? ChunkBytes(rest) : 0);
}

void EncodeLattice(const Kernels& kernels, const LatticeForm& form, float step,
                   std::span<const float> x, uint64_t seed, std::byte* out) {
  const auto mask = static_cast<uint16_t>((1u << form.bits) - 1);
  const double inverse = 1 / static_cast<double>(step);
  Codes codes;
  for (size_t begin = 0; begin < x.size(); begin += form.chunk_elems) {
    const size_t count = std::min(form.chunk_elems, x.size() - begin);
    const auto own = static_cast<uint32_t>(Mixed(seed + begin * 0x9e3779b97f4a7c15u));
    Found found;
    RunOn(
        kernels, [&]() __attribute__((always_inline)) {
          found = Round(x.data() + begin, count, inverse, own, mask, codes.data());
        });
    const bool is_codable = IsWithin(found.largest_bits, kLargest);
    const float written = is_codable ? step : std::numeric_limits<float>::quiet_NaN();
    std::fill_n(out, kHeaderBytes, std::byte{0});
    std::memcpy(out, &written, sizeof(written));
    std::memcpy(out + 8, &found.hash, sizeof(found.hash));
    std::fill(codes.begin() + static_cast<ptrdiff_t>(count), codes.end(), uint16_t{0});
    PackingOf(form.bits).pack(codes.data(), count, out + kHeaderBytes);
    out += form.ChunkBytes(count);
  }
}

ReferenceChunk DecodeLattice(const Kernels& kernels, const LatticeForm& form, const std::byte* in,
                             std::span<const float> reference, size_t number, std::span<float> to) {
  const size_t begin = number * form.chunk_elems;
  const size_t count = std::min(form.chunk_elems, reference.size() - begin);
  in += number * form.ChunkBytes(form.chunk_elems);
  float written = 0;
  uint64_t expected = 0;
  std::memcpy(&written, in, sizeof(written));
  std::memcpy(&expected, in + 8, sizeof(expected));
  if (!(written > 0)) return {};
  Codes codes;
  PackingOf(form.bits).unpack(in + kHeaderBytes, count, codes.data());
  const auto step = static_cast<double>(written);
  const auto q = static_cast<double>(uint64_t{1} << form.bits);
  Found found;
  RunOn(
      kernels, [&]() __attribute__((always_inline)) {
        found = Near(codes.data(), reference.data() + begin, count, step, 1 / step, q,
                     to.data() + begin);
      });
  if (!IsWithin(found.largest_bits, kLargest)) return {};
  return {.is_right = found.hash == expected,
          .distance = std::bit_cast<double>(found.distance_bits) * step};
}

namespace {

LatticeForm FormOf(const CodecValues& values) {
  return {.bits = static_cast<int>(values[0]), .chunk_elems = kMaxChunk};
}

constexpr CodecParameter kParameters[] = {
    {.name = "bits", .standard = 8, .minimum = 4, .maximum = kMostBits, .multiple = 1}};

constexpr ReferenceCodec kCodec{
    .name = "lattice",
    .card =
        "for models that two ranks average (swarm:codec=lattice@8, adpsgd:codec=lattice@8): bits/8 "
        "bytes and 16 of each 1024 elements; right in expectation, error below a step, which "
        "follows how far apart the models are; NaN and infinity travel whole",
    .parameters = kParameters,
    .chunk_elems = kMaxChunk,
    .chunk_bytes = [](const CodecValues& values,
                      size_t count) { return FormOf(values).ChunkBytes(count); },
    .reach = [](const CodecValues& values) { return FormOf(values).Reach(1); },
    .encode =
        [](const Kernels& kernels, const CodecValues& values, float step,
           std::span<const float> elements, uint64_t seed,
           std::byte* out) { EncodeLattice(kernels, FormOf(values), step, elements, seed, out); },
    .decode =
        [](const Kernels& kernels, const CodecValues& values, const std::byte* in,
           std::span<const float> reference, std::span<float> to) {
          return DecodeLattice(kernels, FormOf(values), in, reference, 0, to);
        }};
const ReferenceCodecRegistration kRegistration(kCodec);

}  // namespace
}  // namespace covey
