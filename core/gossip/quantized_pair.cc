#include "core/gossip/quantized_pair.h"

#include <algorithm>
#include <cmath>

#include "core/base/finite.h"

namespace covey {
namespace {

// Nearer than that to each other, by the largest of a chunk, models are for float32 the same.
constexpr double kSame = 0x1p-20;
// About as many elements are coded at once, by a codec that has no chunks.
constexpr size_t kPieceElems = 1024;

size_t ChunksOf(const RoundLayout::Tile& tile, size_t chunk_elems) {
  return tile.dtype == DType::kF32 ? (tile.count + chunk_elems - 1) / chunk_elems : 0;
}

// The distance of two models sent whole that a step has to reach; not finite: they are not.
double DistanceOf(std::span<const float> x, std::span<const float> y) {
  double distance = 0, magnitude = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto one = static_cast<double>(x[i]), other = static_cast<double>(y[i]);
    if (!std::isfinite(one - other)) return one - other;
    distance = std::max(distance, std::abs(one - other));
    magnitude = std::max(magnitude, std::abs(one));
  }
  return std::max(distance, magnitude * kSame);
}

double LargestOf(std::span<const float> x) {
  float largest = 0;
  for (const float one : x) largest = std::max(largest, std::abs(one));
  return static_cast<double>(largest);
}

}  // namespace

size_t PairCodec::ChunkElems() const {
  if (codec != nullptr) return codec->chunk_elems;
  return std::max<size_t>(1, kPieceElems / alone.form.block_elems) * alone.form.block_elems;
}

size_t PairCodec::ChunkBytes(size_t count) const {
  return codec != nullptr ? codec->chunk_bytes(values, count) : alone.form.EncodedBytes(count);
}

QuantizedPair::QuantizedPair(const PairCodec& codec, const RoundLayout* layout,
                             const Kernels* kernels)
    : codec_(codec), layout_(layout), kernels_(kernels) {
  const size_t most = codec.ChunkElems();
  if (codec.codec != nullptr) {
    size_t chunks = 0;
    for (const RoundLayout::Tile& tile : layout->tiles()) chunks += ChunksOf(tile, most);
    steps_.assign(chunks, ReferenceStep(codec.codec->reach(codec.values)));
  }
  code_.resize(codec.ChunkBytes(most));
  for (std::vector<float>& decoded : decoded_) decoded.resize(most);
}

void QuantizedPair::Write(const std::byte* const from[2], std::byte* const to[2], uint64_t seed,
                          Stores stores) {
  stores_ = stores;
  error_ = 0;
  const size_t most = codec_.ChunkElems();
  size_t number = 0;
  for (const RoundLayout::Tile& tile : layout_->tiles()) {
    const std::byte* inputs[] = {from[0] + tile.offset_bytes, from[1] + tile.offset_bytes};
    std::byte* outputs[] = {to[0] + tile.offset_bytes, to[1] + tile.offset_bytes};
    if (tile.dtype != DType::kF32) {
      WriteWhole(tile.dtype, inputs, outputs, tile.count);
      continue;
    }
    for (size_t at = 0; at < tile.count; at += most, ++number) {
      const size_t count = std::min(most, tile.count - at);
      const Pair chunk{{reinterpret_cast<const float*>(inputs[0]) + at, count},
                       {reinterpret_cast<const float*>(inputs[1]) + at, count}};
      float* const results[] = {reinterpret_cast<float*>(outputs[0]) + at,
                                reinterpret_cast<float*>(outputs[1]) + at};
      WriteChunk(chunk, results, seed + number, number);
    }
  }
}

void QuantizedPair::WriteChunk(const Pair& from, float* const to[2], uint64_t seed, size_t number) {
  const size_t count = from[0].size();
  counters_.bytes += 2 * codec_.ChunkBytes(count);
  double error = 0;
  const bool is_right = codec_.codec != nullptr ? Decode(from, seed, &steps_[number], &error)
                                                : DecodeAlone(from, seed, &error);
  if (!is_right) {
    const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(from[0].data()),
                                       reinterpret_cast<const std::byte*>(from[1].data())};
    std::byte* const outputs[] = {reinterpret_cast<std::byte*>(to[0]),
                                  reinterpret_cast<std::byte*>(to[1])};
    return WriteWhole(DType::kF32, inputs, outputs, count);
  }
  error_ = std::max(error_, error);
  for (size_t i = 0; i < count; ++i) {
    const float half = (decoded_[1][i] - decoded_[0][i]) / 2;
    to[0][i] = from[0][i] + half;
    // gossip-P8 and gossip-P9: both sides move by the same half, so the sum of the two models
    // stays.
    to[1][i] = from[1][i] - half;
  }
}

// Each model, as the other side has it; false: it has not. `error`: of half their difference.
bool QuantizedPair::Decode(const Pair& from, uint64_t seed, ReferenceStep* step, double* error) {
  bool is_right = true;
  double distance = 0;
  const float used = step->step();
  for (const size_t one : {0, 1}) {
    // gossip-P8: both sides round with the same draws, so equal models stay equal.
    codec_.codec->encode(*kernels_, codec_.values, used, from[one], seed, code_.data());
    const ReferenceChunk chunk =
        codec_.codec->decode(*kernels_, codec_.values, code_.data(), from[1 - one],
                             std::span(decoded_[one]).first(from[one].size()));
    ++counters_.decoded;
    counters_.repaired += chunk.is_right ? 0 : 1;
    // gossip-P8: a chunk whose hash differs was decoded wrongly: it is sent whole.
    is_right &= chunk.is_right;
    distance = std::max(distance, chunk.distance);
  }
  step->OnDistance(is_right ? distance : DistanceOf(from[0], from[1]));
  *error = static_cast<double>(used) / 2;
  return is_right;
}

// Each model, as both sides have it.
bool QuantizedPair::DecodeAlone(const Pair& from, uint64_t seed, double* error) {
  const ChosenCodec& codec = codec_.alone;
  bool is_right = true;
  for (const size_t one : {0, 1}) {
    const std::span<float> to = std::span(decoded_[one]).first(from[one].size());
    // gossip-P9: both codes use the same draws, so equal models stay equal.
    codec.codec->encode(*kernels_, codec.values, from[one], seed, code_.data());
    codec.codec->decode(*kernels_, codec.values, code_.data(), to);
    const bool is_finite =
        CountNotFinite(DType::kF32, reinterpret_cast<const std::byte*>(to.data()), to.size()) == 0;
    ++counters_.decoded;
    counters_.repaired += is_finite ? 0 : 1;
    is_right &= is_finite;
    *error += codec.codec->bound(codec.values, LargestOf(from[one])) / 2;
  }
  return is_right;
}

void QuantizedPair::WriteWhole(DType dtype, const std::byte* const from[2], std::byte* const to[2],
                               size_t count) {
  counters_.bytes += 2 * count * SizeOf(dtype);
  kernels_->reduce({.dtype = dtype, .op = Op::kSum, .divisor = 2},
                   std::span<const std::byte* const>(from, 2), std::span<std::byte* const>(to, 2),
                   count, stores_);
}

}  // namespace covey
