// Two models after each side has sent codes of its own: x + d/2 and y - d/2, where d is the decoded
// y - x. Two results, but their sum is that of the models.
//
// Both sides round with the same draws, so d is right in expectation where rounding draws, and 0
// where the models are equal: at a consensus nothing is moved. Two kinds of codecs:
//   core/run/reference_codec.h
//                          each decodes the other's beside its own model. d is wrong by less than a
//                          step, which follows how near models are. A chunk that one side cannot
//                          decode is sent whole by both, and becomes the mean of both, with the
//                          same bits: a repair. Its step follows.
//   core/run/codec.h       each decodes both, its own too: d = Q(y) - Q(x), wrong by the errors of
//                          the two codes at most, whose steps are those of numbers of a model,
//                          however near the two are. Nothing is decoded wrongly; a chunk of whose
//                          code a number is not finite is sent whole.
//
// The result does not depend on the rank that computes it: the rank that begins an exchange does
// the work of both sides. Between hosts far_codec.h does it.
// Sans-IO; one thread at a time.
#ifndef COVEY_CORE_GOSSIP_QUANTIZED_PAIR_H_
#define COVEY_CORE_GOSSIP_QUANTIZED_PAIR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/layout.h"
#include "core/run/codec.h"
#include "core/run/reference_codec.h"

namespace covey {

// One of the two kinds, or none: models are exchanged as they are.
struct PairCodec {
  const ReferenceCodec* codec = nullptr;
  CodecValues values{};
  ChosenCodec alone{};

  bool Codes() const { return codec != nullptr || alone.codec != nullptr; }
  size_t ChunkElems() const;  // of a chunk, at most
  size_t ChunkBytes(size_t count) const;
};

// Bytes that would travel, both directions, of exchanges this rank has begun.
struct QuantizedCounters {
  uint64_t decoded = 0;   // chunks that one of the two has decoded
  uint64_t repaired = 0;  // of those: it was wrong, or not finite, so that both sent theirs whole
  uint64_t bytes = 0;     // sent, with repaired elements and those not float32

  QuantizedCounters& operator+=(const QuantizedCounters& more) {
    decoded += more.decoded;
    repaired += more.repaired;
    bytes += more.bytes;
    return *this;
  }
};

class QuantizedPair {
 public:
  // All outlive it. REQUIRES: codec.Codes().
  QuantizedPair(const PairCodec& codec, const RoundLayout* layout, const Kernels* kernels);

  // From two models to two, as the layout has them; no overlap. Float32 is coded, all else becomes
  // the mean as it is.
  void Write(const std::byte* const from[2], std::byte* const to[2], uint64_t seed, Stores stores);

  // How far from the mean what was written last may be.
  double error() const { return error_; }
  const QuantizedCounters& counters() const { return counters_; }

 private:
  using Pair = std::span<const float>[2];
  void WriteChunk(const Pair& from, float* const to[2], uint64_t seed, size_t number);
  bool Decode(const Pair& from, uint64_t seed, ReferenceStep* step, double* error);
  bool DecodeAlone(const Pair& from, uint64_t seed, double* error);
  void WriteWhole(DType dtype, const std::byte* const from[2], std::byte* const to[2],
                  size_t count);

  PairCodec codec_;
  const RoundLayout* layout_;
  const Kernels* kernels_;
  Stores stores_ = Stores::kCached;
  std::vector<ReferenceStep> steps_;  // of each chunk, for a codec that has them
  std::vector<std::byte> code_;
  std::vector<float> decoded_[2];
  double error_ = 0;
  QuantizedCounters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_QUANTIZED_PAIR_H_
