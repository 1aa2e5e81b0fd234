// What two models become when each side has sent codes of its own and decoded the other's beside
// its own model: x + d/2 and y - d/2, where d is what is decoded of y - x. Two results, which
// differ by less than a step, but their sum is that of the models.
//
// Both sides round with the same draws (rule N1 of core/run/near_codec.h): d is right in
// expectation, wrong by less than a step, and 0 where the models are equal: at a consensus nothing
// is moved. Each result is less than half a step from the mean. A chunk that one side cannot decode
// is sent whole by both, and becomes the mean of both, with the same bits: a repair. Its step
// follows.
//
// What does not depend on who computes it stays so: on one host who begins an exchange does the
// work of both sides, over a network each would do its own.
// Sans-IO; one thread at a time.
#ifndef COVEY_CORE_PAIR_CODED_MEAN_H_
#define COVEY_CORE_PAIR_CODED_MEAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/round/layout.h"
#include "core/run/kernels.h"
#include "core/run/near_codec.h"

namespace covey {

// Null: models are exchanged as they are.
struct PairCodec {
  const NearCodec* codec = nullptr;
  CodecValues values{};
};

// Of what this rank has begun, both directions: what would travel.
struct CodedCounters {
  uint64_t decoded = 0;   // chunks that one of the two has decoded
  uint64_t repaired = 0;  // of those: it was wrong, so that both sent theirs whole
  uint64_t bytes = 0;     // sent, with what was repaired and what is not float32
};

class CodedMean {
 public:
  // All outlive it.
  CodedMean(const PairCodec& codec, const RoundLayout* layout, const Kernels* kernels);

  // From two models to two, as the layout has them; no overlap. Float32 is coded, all else becomes
  // the mean as it is.
  void Write(const std::byte* const from[2], std::byte* const to[2], uint64_t seed, Stores stores);

  // How far from the mean what was written last may be.
  double error() const { return error_; }
  const CodedCounters& counters() const { return counters_; }

 private:
  using Pair = std::span<const float>[2];
  void WriteChunk(const Pair& from, float* const to[2], uint64_t seed, NearStep* step);
  bool Decode(const Pair& from, uint64_t seed, NearStep* step);
  void WriteWhole(DType dtype, const std::byte* const from[2], std::byte* const to[2],
                  size_t count);

  PairCodec codec_;
  const RoundLayout* layout_;
  const Kernels* kernels_;
  Stores stores_ = Stores::kCached;
  std::vector<NearStep> steps_;  // of each chunk
  std::vector<std::byte> code_;
  std::vector<float> decoded_[2];
  double error_ = 0;
  CodedCounters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_PAIR_CODED_MEAN_H_
