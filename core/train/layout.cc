#include "core/train/layout.h"

#include <algorithm>
#include <cstring>

namespace covey {
namespace {

constexpr size_t kAlign = 64;  // of each parameter: a line of the cache

size_t RoundUp(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

TrainerLayout::TrainerLayout(const std::vector<Parameter>& parameters)
    : parameters_(parameters), offsets_bytes_(parameters.size()), sizes_bytes_(parameters.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const DType dtype = parameters[i].dtype;
    const auto is_same = [&](const Piece& piece) { return piece.dtype == dtype; };
    if (std::none_of(pieces_.begin(), pieces_.end(), is_same))
      pieces_.push_back({.dtype = dtype, .count = 0, .offset_bytes = 0, .first = i});
  }
  for (Piece& piece : pieces_) {
    piece.offset_bytes = length_bytes_;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].dtype != piece.dtype) continue;
      offsets_bytes_[i] = length_bytes_;
      sizes_bytes_[i] = static_cast<size_t>(parameters[i].count) * SizeOf(piece.dtype);
      length_bytes_ += RoundUp(sizes_bytes_[i]);
    }
    piece.count = static_cast<int64_t>((length_bytes_ - piece.offset_bytes) / SizeOf(piece.dtype));
  }
}

void TrainerLayout::CopyIn(std::span<const void* const> parameters, std::byte* to) const {
  for (size_t i = 0; i < parameters.size(); ++i)
    std::memcpy(to + offsets_bytes_[i], parameters[i], sizes_bytes_[i]);
}

void TrainerLayout::CopyOut(const std::byte* from, std::span<void* const> parameters) const {
  for (size_t i = 0; i < parameters.size(); ++i)
    std::memcpy(parameters[i], from + offsets_bytes_[i], sizes_bytes_[i]);
}

}  // namespace covey
