#include "core/partial/eager_copy.h"

#include <algorithm>

namespace covey {
namespace {

constexpr size_t kLargeBytes = 8 << 20;
constexpr int kAtOnce = 4;  // tiles that are copied in one pass

}  // namespace

Stores StoresOf(const RoundLayout& layout) {
  return layout.length_bytes() < kLargeBytes ? Stores::kCached : Stores::kStreaming;
}

void EagerCopy::Aim(std::span<void* const> to) {
  Forget();
  to_.clear();
  for (void* at : to) to_.push_back(static_cast<std::byte*>(at));
}

bool EagerCopy::IsAimedAt(std::span<void* const> to) const {
  // partial-W6a: early copies lie at the aimed address: another one gets all tiles anew.
  return std::equal(to.begin(), to.end(), to_.begin(), to_.end());
}

void EagerCopy::Look(const StateWord& state) {
  if (version_ == state.version()) return;
  version_ = state.version();
  sum_ = static_cast<size_t>(memory_->SumsOf(version_, state.final)[static_cast<size_t>(self_)]);
  next_ = 0;
  there_.assign(memory_->layout().tiles().size(), false);
}

void EagerCopy::Copy(size_t number, const std::byte* from) {
  const RoundLayout& layout = memory_->layout();
  const RoundLayout::Tile& tile = layout.tiles()[number];
  there_[number] = true;
  if (to_[tile.span] == nullptr) return;
  std::byte* to = to_[tile.span] + (tile.offset_bytes - layout.offsets_bytes()[tile.span]);
  kernels_->copy(to, from, tile.count * SizeOf(tile.dtype), StoresOf(layout));
}

bool EagerCopy::Work(const StateWord& state) {
  if (to_.empty()) return false;
  Look(state);
  const RoundLayout& layout = memory_->layout();
  const std::byte* sum =
      memory_->Result(state.buffer) + memory_->record_bytes() + layout.length_bytes() * sum_;
  bool moved = false;
  for (int i = 0; next_ < there_.size(); ++next_) {
    if (there_[next_]) continue;
    const size_t number = 1 + there_.size() * sum_ + next_;
    // partial-W6a: a tile is copied early only once it is marked done.
    if (i++ == kAtOnce || words_->Load(memory_->DoneAt(state.buffer, number)) != version_) break;
    Copy(next_, sum + layout.tiles()[next_].offset_bytes);
    moved = true;
  }
  return moved;
}

void EagerCopy::Take(const StateWord& state, size_t sum, size_t number, const std::byte* from) {
  if (to_.empty()) return;
  Look(state);
  if (sum == sum_ && !there_[number]) Copy(number, from);
}

}  // namespace covey
