// The codec of a method in the exchanges of a training that all members do: the elements that
// travel in place of gradients or a model.
//
//   use         travels                             afterwards
//   kGradients  gradients + left out                -
//   kModels     model - anchor, if there is one,    model = anchor + the mean; it is the anchor
//               else the model, without the codec   the model is the anchor
//   kNeighbors  model                               -
//
// The anchor is what all members had after the last average: so replicas stay equal, and the error
// of a codec is small beside what models have moved. `Left out` is the residual of a codec that is
// biased, which is added to the next contribution (error feedback: Seide et al. 2014,
// doi:10.21437/Interspeech.2014-274; Karimireddy et al. 2019, arXiv:1901.09847).
//
// Invariant: a contribution that fails leaves nothing out: the model is whole, and gradients are
// collected anew.
//
// Elements of float32; others travel as they are. One thread at a time.
#ifndef COVEY_CORE_ENGINE_TRAINER_CODEC_H_
#define COVEY_CORE_ENGINE_TRAINER_CODEC_H_

#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/base/tensor.h"
#include "core/run/codec.h"
#include "core/train/layout.h"

namespace covey {

class TrainerCodec {
 public:
  // An array that a checkpoint keeps; of the layout's length.
  struct Array {
    const char* name = nullptr;
    std::span<std::byte> bytes;
  };

  TrainerCodec(ChosenCodec chosen, CodecUse use, const TrainerLayout* layout,
               const Kernels* kernels);

  // An exchange begins; its numbers lie at `numbers`, as the layout says, until End. `is_whole`:
  // models travel without the codec.
  void Begin(std::byte* numbers, bool is_whole);
  // Where the piece that travels lies; and the codec of the operation, if it is encoded.
  std::byte* PlaceOf(const TrainerLayout::Piece& piece);
  bool Encodes(const TrainerLayout::Piece& piece) const;
  const ChosenCodec& chosen() const { return chosen_; }
  // The exchange has ended. `is_ok`: what travelled is the result of all.
  void End(bool is_ok);

  // Whether there is an anchor.
  bool is_anchored() const { return is_anchored_; }
  std::vector<Array> arrays();
  size_t HeldBytes() const {
    return anchor_.size() + left_out_.size() + room_.size() + next_.size();
  }
  // A checkpoint was written to arrays(), with an anchor or without.
  void OnWritten(bool is_anchored) { is_anchored_ = is_anchored; }

 private:
  void BeginModel();
  void AddLeftOut();
  void LeaveOut(const std::byte* contribution);
  template <typename Call>
  void ForEncoded(Call call);

  ChosenCodec chosen_;
  CodecUse use_;
  const TrainerLayout* layout_;
  const Kernels* kernels_;
  bool is_anchored_ = false;
  // Empty until they are needed; then of the layout's length.
  std::vector<std::byte> anchor_, left_out_;
  std::vector<std::byte> room_, next_;  // of the exchange under way: what moved, what is left out
  std::byte* numbers_ = nullptr;
  bool is_encoded_ = false;  // in the exchange under way
  bool moves_ = false;       // what the model has moved travels
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TRAINER_CODEC_H_
