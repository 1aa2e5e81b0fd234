#include "core/round/merge.h"

#include <algorithm>

namespace covey {
namespace {

// Where the two models lie, and how many are in the mean.
struct Parts {
  const std::byte* mean;
  const std::byte* own;
  size_t shards;  // that are merged already
  int32_t count;
  bool late;
};

constexpr size_t kLargeBytes = 8 << 20;
constexpr int kAtOnce = 4;  // shards that are merged early in one pass

void MergeShard(const Kernels& kernels, const RoundLayout::Shard& shard, const Parts& parts,
                std::byte* to, std::byte* scratch, Stores stores) {
  const std::byte* mean = parts.mean + shard.offset_bytes;
  if (!parts.late) return kernels.copy(to, mean, shard.count * SizeOf(shard.dtype), stores);
  const std::byte* own = parts.own + shard.offset_bytes;
  const double count = parts.count;
  kernels.begin({.dtype = shard.dtype, .op = Op::kSum, .prescale = count}, mean, scratch,
                shard.count);
  kernels.add({.dtype = shard.dtype, .op = Op::kSum}, own, scratch, shard.count);
  kernels.finish({.dtype = shard.dtype, .op = Op::kSum, .postscale = 1.0 / (count + 1.0)}, scratch,
                 to, shard.count);
}

void MergeSpans(const RoundMemory& memory, const Kernels& kernels, const Parts& parts,
                std::span<void* const> to) {
  const RoundLayout& layout = memory.layout();
  // Half precision is added up in float32.
  std::vector<std::byte> scratch(parts.late ? 2 * layout.shard_bytes() : 0);
  for (size_t i = parts.shards; i < layout.shards().size(); ++i) {
    const RoundLayout::Shard& shard = layout.shards()[i];
    const auto& offsets = layout.offsets_bytes();
    const auto span = static_cast<size_t>(
        std::upper_bound(offsets.begin(), offsets.end(), shard.offset_bytes) - offsets.begin() - 1);
    if (to[span] == nullptr) continue;
    std::byte* at = static_cast<std::byte*>(to[span]) + (shard.offset_bytes - offsets[span]);
    MergeShard(kernels, shard, parts, at, scratch.data(), StoresOf(layout));
  }
}

}  // namespace

Stores StoresOf(const RoundLayout& layout) {
  return layout.length_bytes() < kLargeBytes ? Stores::kCached : Stores::kStreaming;
}

Found Merge(const RoundMemory& memory, SharedWords* words, const Kernels& kernels,
            const MergeOf& member, uint64_t version, std::span<void* const> to, Merged* merged) {
  const ResultLog log(&memory, words, &kernels);
  const uint64_t word = words->Load(memory.LogAt(version));
  const LogEntry entry = LogEntry::Of(word);
  if (entry.version != version) return entry.version < version ? Found::kNotYet : Found::kGone;
  // In this order: who finds it in the log before it looks for a buffer has not found it free, and
  // who looks later finds the pin.
  words->Store(memory.PinAt(member.self), entry.buffer + 1);
  const Found found = log.Read(version, {}, &merged->record);
  if (found == Found::kYes) {
    const RoundRecord& record = merged->record;
    const std::vector<int32_t> sums = memory.SumsOf(version, record.header.final);
    const auto self = static_cast<size_t>(member.self);
    merged->version = version;
    merged->late = record.contributions[self].last != member.own.step;
    merged->count = 0;
    for (size_t i = 0; i < sums.size(); ++i)
      merged->count += sums[i] == sums[self] && record.contributions[i].count > 0 ? 1 : 0;
    const size_t offset = memory.layout().length_bytes() * static_cast<size_t>(sums[self]);
    const Parts parts{.mean = memory.Result(entry.buffer) + memory.record_bytes() + offset,
                      .own = memory.Buffer(member.self, member.own.buffer),
                      .shards = merged->late ? 0 : member.shards,
                      .count = merged->count,
                      .late = merged->late};
    MergeSpans(memory, kernels, parts, to);
  }
  words->Store(memory.PinAt(member.self), 0);
  return found;
}

bool EarlyMerge::Work(const Turn& turn, std::byte* open) {
  if (version_ != turn.version()) {
    version_ = turn.version();
    sum_ = static_cast<size_t>(memory_->SumsOf(version_, turn.final)[static_cast<size_t>(self_)]);
    next_ = 0;
  }
  const RoundLayout& layout = memory_->layout();
  const std::byte* mean =
      memory_->Result(turn.buffer) + memory_->record_bytes() + layout.length_bytes() * sum_;
  // If the version is over and the buffer is another's, the version cannot be found any more, so
  // nobody will ask for these.
  size_t next = next_;
  for (int i = 0; i < kAtOnce && next < layout.shards().size(); ++i, ++next) {
    const size_t number = 1 + layout.shards().size() * sum_ + next;
    if (words_->Load(memory_->DoneAt(turn.buffer, number)) != version_) break;
    const RoundLayout::Shard& shard = layout.shards()[next];
    kernels_->copy(open + shard.offset_bytes, mean + shard.offset_bytes,
                   shard.count * SizeOf(shard.dtype), StoresOf(layout));
  }
  const bool moved = next > next_;
  next_ = next;
  return moved;
}

}  // namespace covey
