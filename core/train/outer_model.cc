#include "core/train/outer_model.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

// Deltas that are kept apart. A rank has more only if no version is made for so many of its steps.
constexpr size_t kMostPending = 4;

template <typename T>
void DeductElements(std::byte* to, const std::byte* from, size_t count) {
  T* left = reinterpret_cast<T*>(to);
  const T* right = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) left[i] -= right[i];
}

template <typename T>
void AddElements(std::byte* to, const std::byte* from, size_t count) {
  T* left = reinterpret_cast<T*>(to);
  const T* right = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) left[i] += right[i];
}

}  // namespace

Status OuterModel::Check(const Method& method, const TrainerLayout& layout) {
  for (const TrainerLayout::Piece& piece : layout.pieces())
    if (piece.dtype != DType::kF32 && piece.dtype != DType::kF64)
      return Status::Unsupported(
          std::string(method.name) +
          " has arithmetic for parameters of float32 and float64, and parameter " +
          std::to_string(piece.first) + " is of " + NameOf(piece.dtype) +
          ": keep the parameters that are trained in float32");
  return Status::Ok();
}

OuterModel::OuterModel(const MethodChoice& choice, const TrainerLayout* layout)
    : method_(choice.method),
      settings_(choice.settings),
      layout_(layout),
      model_(layout->length_bytes()),
      state_(method_->state.size(), std::vector<std::byte>(layout->length_bytes())) {}

void OuterModel::Anchor(const std::byte* model) {
  std::memcpy(model_.data(), model, model_.size());
  is_anchored_ = true;
}

void OuterModel::Subtract(const std::byte* model, std::byte* delta) {
  // train-T9: from what this rank has begun with: its pending deltas are in none but themselves.
  last_.resize(model_.size());
  Adopt(last_.data());
  Deduct(last_.data(), model);
  std::memcpy(delta, last_.data(), last_.size());
}

void OuterModel::OnPublished(uint64_t step) {
  if (pending_.size() < kMostPending) {
    pending_.push_back({step, std::move(last_)});
    last_.clear();
    return;
  }
  Pending& newest = pending_.back();
  newest.step = step;
  for (const TrainerLayout::Piece& piece : layout_->pieces()) {
    const auto add = piece.dtype == DType::kF64 ? AddElements<double> : AddElements<float>;
    add(newest.delta.data() + piece.offset_bytes, last_.data() + piece.offset_bytes,
        static_cast<size_t>(piece.count));
  }
}

void OuterModel::Combine(const std::byte* sum, int64_t deltas, uint64_t own) {
  for (const TrainerLayout::Piece& piece : layout_->pieces()) {
    std::vector<std::byte*> state;
    for (std::vector<std::byte>& array : state_) state.push_back(array.data() + piece.offset_bytes);
    method_->combine(settings_, {.dtype = piece.dtype,
                                 .count = static_cast<size_t>(piece.count),
                                 .sum = sum + piece.offset_bytes,
                                 .deltas = deltas,
                                 .model = model_.data() + piece.offset_bytes,
                                 .state = state});
  }
  Forget(own);
}

// train-T9: what a version has had is in the model, and not this rank's own any more.
void OuterModel::Forget(uint64_t own) {
  for (; !pending_.empty() && pending_.front().step <= own; pending_.pop_front())
    last_.swap(pending_.front().delta);  // whose memory is used again
}

void OuterModel::Adopt(std::byte* model) const {
  std::memcpy(model, model_.data(), model_.size());
  for (const Pending& pending : pending_) Deduct(model, pending.delta.data());
}

void OuterModel::Deduct(std::byte* to, const std::byte* from) const {
  for (const TrainerLayout::Piece& piece : layout_->pieces()) {
    const auto deduct = piece.dtype == DType::kF64 ? DeductElements<double> : DeductElements<float>;
    deduct(to + piece.offset_bytes, from + piece.offset_bytes, static_cast<size_t>(piece.count));
  }
}

std::vector<std::span<std::byte>> OuterModel::arrays() {
  std::vector<std::span<std::byte>> all{model_};
  for (std::vector<std::byte>& array : state_) all.emplace_back(array);
  return all;
}

std::vector<const char*> OuterModel::names() const {
  std::vector<const char*> all{"anchor"};
  all.insert(all.end(), method_->state.begin(), method_->state.end());
  return all;
}

size_t OuterModel::HeldBytes() const {
  return (1 + state_.size() + (last_.empty() ? 0 : 1) + pending_.size()) * layout_->length_bytes();
}

void OuterModel::Load(std::span<const std::byte> image, uint64_t own) {
  CHECK(image.size() == model_.size() * (1 + state_.size()), "the arrays of another rank");
  for (const std::span<std::byte> array : arrays()) {
    std::memcpy(array.data(), image.data(), array.size());
    image = image.subspan(array.size());
  }
  is_anchored_ = true;
  Forget(own);
}

}  // namespace covey
