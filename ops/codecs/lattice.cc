#include "ops/codecs/lattice.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace covey {
namespace {

constexpr size_t kHeaderBytes = 16;
constexpr double kLargest = 0x1p50;  // of x / step, so that it and what is added to it are exact
constexpr double kForgotten = 0.98;  // of the largest distance, with each chunk
constexpr float kSmallestStep = 0x1p-100f;

uint64_t Mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The sum of what is mixed of each number and its place: one that differs changes it.
uint64_t HashOf(int64_t k, size_t place) {
  return Mixed(static_cast<uint64_t>(k) * 0x9e3779b97f4a7c15u + place);
}

// In [0, 1).
double Drawn(uint64_t seed, size_t place) {
  return static_cast<double>(Mixed(seed + place * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

void PutBits(std::byte* out, size_t bit, int bits, uint64_t value) {
  for (int i = 0; i < bits; i += 8 - static_cast<int>((bit + static_cast<size_t>(i)) % 8)) {
    const size_t at = bit + static_cast<size_t>(i);
    out[at / 8] |= static_cast<std::byte>((value >> i) << (at % 8));
  }
}

uint64_t GetBits(const std::byte* in, size_t bit, int bits) {
  uint64_t value = 0;
  for (int i = 0; i < bits; i += 8 - static_cast<int>((bit + static_cast<size_t>(i)) % 8)) {
    const size_t at = bit + static_cast<size_t>(i);
    value |= (std::to_integer<uint64_t>(in[at / 8]) >> (at % 8)) << i;
  }
  return value & ((uint64_t{1} << bits) - 1);
}

}  // namespace

size_t LatticeForm::ChunkBytes(size_t count) const {
  return kHeaderBytes + (count * static_cast<size_t>(bits) + 7) / 8;
}

size_t LatticeForm::EncodedBytes(size_t count) const {
  const size_t whole = count / chunk_elems, rest = count % chunk_elems;
  return whole * ChunkBytes(chunk_elems) + (rest > 0 ? ChunkBytes(rest) : 0);
}

void EncodeLattice(const LatticeForm& form, float step, std::span<const float> x, uint64_t seed,
                   std::byte* out) {
  const uint64_t mask = (uint64_t{1} << form.bits) - 1;
  for (size_t begin = 0; begin < x.size(); begin += form.chunk_elems) {
    const size_t count = std::min(form.chunk_elems, x.size() - begin);
    std::byte* codes = out + kHeaderBytes;
    std::fill(out, out + form.ChunkBytes(count), std::byte{0});
    uint64_t hash = 0;
    bool is_codable = true;
    for (size_t i = 0; i < count; ++i) {
      const double scaled = static_cast<double>(x[begin + i]) / static_cast<double>(step);
      const bool fits = std::abs(scaled) < kLargest;
      is_codable = is_codable && fits;
      const double rounded = std::floor((fits ? scaled : 0) + Drawn(seed, begin + i));
      const auto k = static_cast<int64_t>(rounded);
      hash += HashOf(k, i);
      PutBits(codes, i * static_cast<size_t>(form.bits), form.bits,
              static_cast<uint64_t>(k) & mask);
    }
    const float written = is_codable ? step : std::numeric_limits<float>::quiet_NaN();
    std::memcpy(out, &written, sizeof(written));
    std::memcpy(out + 8, &hash, sizeof(hash));
    out += form.ChunkBytes(count);
  }
}

LatticeChunk DecodeLattice(const LatticeForm& form, const std::byte* in,
                           std::span<const float> reference, size_t number, std::span<float> to) {
  const size_t begin = number * form.chunk_elems;
  const size_t count = std::min(form.chunk_elems, reference.size() - begin);
  in += number * form.ChunkBytes(form.chunk_elems);
  float step = 0;
  uint64_t expected = 0, hash = 0;
  std::memcpy(&step, in, sizeof(step));
  std::memcpy(&expected, in + 8, sizeof(expected));
  if (!(step > 0)) return {};
  const auto q = static_cast<double>(uint64_t{1} << form.bits);
  LatticeChunk chunk;
  for (size_t i = 0; i < count; ++i) {
    const double near = static_cast<double>(reference[begin + i]) / static_cast<double>(step);
    if (!(std::abs(near) < kLargest)) return {};
    const auto code = static_cast<double>(
        GetBits(in + kHeaderBytes, i * static_cast<size_t>(form.bits), form.bits));
    const double k = code + q * std::nearbyint((near - code) / q);
    hash += HashOf(static_cast<int64_t>(k), i);
    chunk.distance = std::max(chunk.distance, std::abs(k - near) * static_cast<double>(step));
    to[begin + i] = static_cast<float>(k * static_cast<double>(step));
  }
  chunk.is_right = hash == expected;
  return chunk;
}

void LatticeStep::OnDecoded(const LatticeChunk& chunk) {
  if (!chunk.is_right) {
    step_ *= 2;
    largest_ = form_.Reach(static_cast<double>(step_)) / 2;
    return;
  }
  largest_ = std::max(largest_ * kForgotten, chunk.distance);
  step_ = std::max(static_cast<float>(2 * largest_ / form_.Reach(1)), kSmallestStep);
}

}  // namespace covey
