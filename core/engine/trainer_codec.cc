#include "core/engine/trainer_codec.h"

#include <cstring>
#include <utility>

namespace covey {
namespace {

const float* Floats(const std::byte* from) { return reinterpret_cast<const float*>(from); }
float* Floats(std::byte* from) { return reinterpret_cast<float*>(from); }

}  // namespace

TrainerCodec::TrainerCodec(ChosenCodec chosen, CodecUse use, const TrainerLayout* layout,
                           const Kernels* kernels)
    : chosen_(std::move(chosen)), use_(use), layout_(layout), kernels_(kernels) {}

template <typename Call>
void TrainerCodec::ForEncoded(Call call) {
  for (const TrainerLayout::Piece& piece : layout_->pieces())
    if (piece.dtype == DType::kF32) call(piece.offset_bytes, static_cast<size_t>(piece.count));
}

void TrainerCodec::Begin(std::byte* numbers, bool is_whole) {
  numbers_ = numbers;
  is_encoded_ = true;
  moves_ = false;
  if (use_ == CodecUse::kNeighbors) return;
  AddLeftOut();
  if (use_ == CodecUse::kModels) {
    moves_ = is_encoded_ = is_anchored_ && !is_whole;
    if (moves_) BeginModel();
  }
  if (is_encoded_ && chosen_.codec->feeds_back) LeaveOut(moves_ ? room_.data() : numbers_);
}

// The change of the model.
void TrainerCodec::BeginModel() {
  room_.resize(layout_->length_bytes());
  ForEncoded([&](size_t offset, size_t count) {
    const float* model = Floats(numbers_ + offset);
    const float* anchor = Floats(anchor_.data() + offset);
    float* moved = Floats(room_.data() + offset);
    for (size_t i = 0; i < count; ++i) moved[i] = model[i] - anchor[i];
  });
}

void TrainerCodec::AddLeftOut() {
  if (left_out_.empty()) return;
  ForEncoded([&](size_t offset, size_t count) {
    float* to = Floats(numbers_ + offset);
    const float* more = Floats(left_out_.data() + offset);
    for (size_t i = 0; i < count; ++i) to[i] += more[i];
  });
  // Models: it is in the model now, until a codec leaves it out again. Gradients that fail are
  // collected anew, without it.
  if (use_ == CodecUse::kModels) left_out_.clear();
}

void TrainerCodec::LeaveOut(const std::byte* contribution) {
  next_.resize(layout_->length_bytes());
  ForEncoded([&](size_t offset, size_t count) {
    ResidualOf(chosen_, *kernels_, {Floats(contribution + offset), count},
               {Floats(next_.data() + offset), count});
  });
}

std::byte* TrainerCodec::PlaceOf(const TrainerLayout::Piece& piece) {
  return (moves_ && piece.dtype == DType::kF32 ? room_.data() : numbers_) + piece.offset_bytes;
}

bool TrainerCodec::Encodes(const TrainerLayout::Piece& piece) const {
  return is_encoded_ && piece.dtype == DType::kF32;
}

void TrainerCodec::End(bool is_ok) {
  if (!is_ok || use_ == CodecUse::kNeighbors) return;
  // train-T14: it is added to the next contribution.
  if (is_encoded_ && chosen_.codec->feeds_back) left_out_.swap(next_);
  if (use_ != CodecUse::kModels) return;
  if (moves_) {
    ForEncoded([&](size_t offset, size_t count) {
      float* model = Floats(numbers_ + offset);
      const float* anchor = Floats(anchor_.data() + offset);
      const float* moved = Floats(room_.data() + offset);
      for (size_t i = 0; i < count; ++i) model[i] = moved[i] + anchor[i];
    });
  }
  anchor_.assign(numbers_, numbers_ + layout_->length_bytes());
  is_anchored_ = true;
}

std::vector<TrainerCodec::Array> TrainerCodec::arrays() {
  std::vector<Array> all;
  if (use_ == CodecUse::kModels) {
    anchor_.resize(layout_->length_bytes());
    all.push_back({"codec's anchor", anchor_});
  }
  if (use_ == CodecUse::kNeighbors || !chosen_.codec->feeds_back) return all;
  left_out_.resize(layout_->length_bytes());
  all.push_back({"codec's residual", left_out_});
  return all;
}

}  // namespace covey
