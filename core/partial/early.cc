#include "core/partial/early.h"

#include <algorithm>

namespace covey {
namespace {

constexpr size_t kLargeBytes = 8 << 20;
constexpr int kAtOnce = 4;  // shards that are copied in one pass

}  // namespace

Stores StoresOf(const RoundLayout& layout) {
  return layout.length_bytes() < kLargeBytes ? Stores::kCached : Stores::kStreaming;
}

void EarlyCopy::Aim(std::span<void* const> to) {
  Forget();
  to_.clear();
  for (void* at : to) to_.push_back(static_cast<std::byte*>(at));
}

bool EarlyCopy::IsAimedAt(std::span<void* const> to) const {
  // partial-W6a: early copies lie at the aimed address: another one gets all shards anew.
  return std::equal(to.begin(), to.end(), to_.begin(), to_.end());
}

void EarlyCopy::Look(const Turn& turn) {
  if (version_ == turn.version()) return;
  version_ = turn.version();
  sum_ = static_cast<size_t>(memory_->SumsOf(version_, turn.final)[static_cast<size_t>(self_)]);
  next_ = 0;
  there_.assign(memory_->layout().shards().size(), false);
}

void EarlyCopy::Copy(size_t number, const std::byte* from) {
  const RoundLayout& layout = memory_->layout();
  const RoundLayout::Shard& shard = layout.shards()[number];
  there_[number] = true;
  if (to_[shard.span] == nullptr) return;
  std::byte* to = to_[shard.span] + (shard.offset_bytes - layout.offsets_bytes()[shard.span]);
  kernels_->copy(to, from, shard.count * SizeOf(shard.dtype), StoresOf(layout));
}

bool EarlyCopy::Work(const Turn& turn) {
  if (to_.empty()) return false;
  Look(turn);
  const RoundLayout& layout = memory_->layout();
  const std::byte* sum =
      memory_->Result(turn.buffer) + memory_->record_bytes() + layout.length_bytes() * sum_;
  bool moved = false;
  for (int i = 0; next_ < there_.size(); ++next_) {
    if (there_[next_]) continue;
    const size_t number = 1 + there_.size() * sum_ + next_;
    // partial-W6a: a shard is copied early only once it is marked done.
    if (i++ == kAtOnce || words_->Load(memory_->DoneAt(turn.buffer, number)) != version_) break;
    Copy(next_, sum + layout.shards()[next_].offset_bytes);
    moved = true;
  }
  return moved;
}

void EarlyCopy::Take(const Turn& turn, size_t sum, size_t number, const std::byte* from) {
  if (to_.empty()) return;
  Look(turn);
  if (sum == sum_ && !there_[number]) Copy(number, from);
}

}  // namespace covey
