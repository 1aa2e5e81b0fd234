// The bodies of messages between hosts (far_message.h): the model of an offer, and the difference
// in its answer, as they are or encoded.
//
//   model of rank i      difference, of rank j                                     what both apply
//   as it is             (X_i - X_j) / 2, as it is                                 that
//   a code Q(X_i)        a code of (Q(X_i) - Q(X_j)) / 2, both with the same draws its decoded form
//
// Both sides apply the bits that both have decoded, so the sum of all models stays; equal models
// are moved by nothing. Float32 is encoded in chunks, all else goes as it is:
//   core/run/codec.h            a chunk of whose code a number is not finite goes whole
//   core/run/reference_codec.h  decoded beside X_j. A chunk that cannot be decoded moves nothing,
//                               and goes whole in the next offer to that partner, as does each
//                               chunk whose step is not known yet
// Sans-IO; one thread at a time.
#ifndef COVEY_CORE_GOSSIP_FAR_CODEC_H_
#define COVEY_CORE_GOSSIP_FAR_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/base/wire.h"
#include "core/gossip/quantized_pair.h"
#include "core/partial/layout.h"

namespace covey {

class FarCodec {
 public:
  // All outlive it. So many members.
  FarCodec(const PairCodec& codec, const RoundLayout* layout, const Kernels* kernels, int32_t size);

  // Models and differences lie as the layout says. `draw`: the same for an offer and its answer.
  // The body of an offer to `partner` is appended.
  void PutModel(const std::byte* model, int32_t partner, uint64_t draw, Bytes* to);
  // The body of the answer is appended, and `difference` is to be added to the own model. False:
  // `body` is of no such model.
  bool PutDifference(std::span<const std::byte> body, const std::byte* own, uint64_t draw,
                     std::byte* difference, Bytes* to);
  // The same difference, by the answer of `partner`. False: `body` is of none.
  bool ReadDifference(std::span<const std::byte> body, int32_t partner, std::byte* difference);

  // The length of the longest body.
  size_t LongestBytes() const { return longest_bytes_; }
  const QuantizedCounters& counters() const { return counters_; }

 private:
  // How a chunk goes. Before it: the form, and the step of a code beside a model.
  enum class Form : uint8_t { kCoded = 0, kWhole = 1, kNone = 2 };
  struct Head {
    Form form = Form::kNone;
    float step = 0;
  };
  static_assert(sizeof(Head) == 8);
  using Floats = std::span<const float>;
  struct Chunk {
    size_t number = 0, count = 0;
    size_t offset_bytes = 0;
  };

  bool IsBeside() const { return codec_.codec != nullptr; }
  template <typename Whole, typename Coded>
  bool ForEach(const Whole& whole, const Coded& coded) const;
  void Subtract(const RoundLayout::Tile& tile, const std::byte* theirs, const std::byte* own,
                std::byte* difference);
  bool Decode(const std::byte* code, float step, Floats reference, std::span<float> to);
  bool Encode(Floats numbers, Floats reference, float step, uint64_t draw, std::byte* code,
              std::span<float> decoded);
  void PutChunk(const Chunk& chunk, Floats model, bool is_whole, uint64_t draw, Bytes* to);
  bool AnswerChunk(const Chunk& chunk, std::span<const std::byte>* body, Floats own, uint64_t draw,
                   std::span<float> difference, Bytes* to);
  bool ReadChunk(const Chunk& chunk, std::span<const std::byte>* body, int32_t partner,
                 std::span<float> difference);

  PairCodec codec_;
  const RoundLayout* layout_;
  const Kernels* kernels_;
  size_t longest_bytes_ = 0;
  // A reference-based codec has by chunk: its step, and whether a distance is known.
  std::vector<ReferenceStep> steps_;
  std::vector<bool> is_known_;
  std::vector<std::vector<bool>> goes_whole_;  // by member and chunk
  std::vector<std::byte> negative_;
  std::vector<float> theirs_, mine_, half_, zeros_;
  QuantizedCounters counters_;
};

}  // namespace covey
#endif  // COVEY_CORE_GOSSIP_FAR_CODEC_H_
