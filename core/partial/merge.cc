#include "core/partial/merge.h"

#include <algorithm>
#include <array>

namespace covey {
namespace {

// Where the two models lie, and how many are in the mean.
struct Parts {
  const std::byte* mean;
  const std::byte* own;
  int32_t count;
  bool merges;            // else the mean is all,
  const std::byte* base;  // or it and the own model less this; null: it is
};

// So that the scratch stays in a core's own cache.
constexpr size_t kPieceElems = 8192;
constexpr size_t kPieceBytes = kPieceElems * sizeof(double);

// The mean and the progress: piece by piece, each number by itself.
void AddProgress(const Kernels& kernels, const RoundLayout::Tile& tile, const Parts& parts,
                 std::byte* to, std::byte* scratch, Stores stores) {
  const size_t item = SizeOf(tile.dtype);
  for (size_t at = 0; at < tile.count; at += kPieceElems) {
    const size_t piece = std::min(kPieceElems, tile.count - at);
    const size_t offset = tile.offset_bytes + at * item;
    const std::byte* base = parts.base + offset;
    std::byte* out = scratch + kPieceBytes;
    kernels.reduce({.dtype = tile.dtype, .op = Op::kSum, .prescale = -1}, {&base, 1}, {&scratch, 1},
                   piece, Stores::kCached);
    const std::array<const std::byte*, 3> from{scratch, parts.own + offset, parts.mean + offset};
    kernels.reduce({.dtype = tile.dtype, .op = Op::kSum}, from, {&out, 1}, piece, Stores::kCached);
    kernels.copy(to + at * item, out, piece * item, stores);
  }
}

void MergeTile(const Kernels& kernels, const RoundLayout::Tile& tile, const Parts& parts,
               std::byte* to, std::byte* scratch, Stores stores) {
  const std::byte* mean = parts.mean + tile.offset_bytes;
  const size_t item = SizeOf(tile.dtype);
  if (parts.base != nullptr) return AddProgress(kernels, tile, parts, to, scratch, stores);
  if (!parts.merges) return kernels.copy(to, mean, tile.count * item, stores);
  const std::byte* own = parts.own + tile.offset_bytes;
  const double count = parts.count;
  std::byte* merged = scratch + kPieceBytes;
  for (size_t at = 0; at < tile.count; at += kPieceElems) {
    const size_t piece = std::min(kPieceElems, tile.count - at);
    kernels.begin({.dtype = tile.dtype, .op = Op::kSum, .prescale = count}, mean + at * item,
                  scratch, piece);
    kernels.add({.dtype = tile.dtype, .op = Op::kSum}, own + at * item, scratch, piece);
    kernels.finish({.dtype = tile.dtype, .op = Op::kSum, .divisor = parts.count + 1}, scratch,
                   merged, piece);
    kernels.copy(to + at * item, merged, piece * item, stores);
  }
}

// `eager`: the part that lies there already; null: none.
void MergeSpans(const RoundMemory& memory, const Kernels& kernels, const Parts& parts,
                const EagerCopy* eager, uint64_t version, std::span<void* const> to) {
  const RoundLayout& layout = memory.layout();
  const bool is_mean = !parts.merges && parts.base == nullptr;
  std::vector<std::byte> scratch(is_mean ? 0 : 2 * kPieceBytes);
  for (size_t i = 0; i < layout.tiles().size(); ++i) {
    const RoundLayout::Tile& tile = layout.tiles()[i];
    if (to[tile.span] == nullptr) continue;
    if (eager != nullptr && is_mean && eager->Has(version, i)) continue;
    std::byte* at = static_cast<std::byte*>(to[tile.span]) +
                    (tile.offset_bytes - layout.offsets_bytes()[tile.span]);
    MergeTile(kernels, tile, parts, at, scratch.data(), StoresOf(layout));
  }
}

}  // namespace

int32_t CountOf(const RoundRecord& record, const std::vector<int32_t>& sums, int32_t sum) {
  int32_t count = 0;
  for (size_t i = 0; i < sums.size(); ++i)
    count += sums[i] == sum && record.contributions[i].count > 0 ? 1 : 0;
  return count;
}

int32_t FirstGroup(const RoundRecord& record, const std::vector<int32_t>& sums) {
  int32_t sum = 0;
  while (CountOf(record, sums, sum) == 0) ++sum;
  return sum;
}

void MergeRecorded(const RoundMemory& memory, const Kernels& kernels, const MergeOf& member,
                   const std::byte* own, std::span<const std::byte* const> means,
                   std::span<void* const> to, Merged* merged) {
  const RoundRecord& record = merged->record;
  const uint64_t version = record.header.version;
  const std::vector<int32_t> sums = memory.SumsOf(version, record.header.final);
  const auto self = static_cast<size_t>(member.self);
  merged->version = version;
  // partial-W12a: the record says whether the own model is in the mean; the number does not.
  merged->late = record.contributions[self].last != member.own.step;
  merged->of_all = record.header.final || memory.models().IsSync(version);
  // All that were in finish() may have published nothing: there is no mean, the own model stays.
  const bool has_mean = record.header.leader >= 0;
  const bool superseded = has_mean && memory.models().HasSuperseded(member.own.step, version);
  const bool takes = has_mean && member.takes;
  int32_t sum = sums[self];
  // partial-W12a: a group without models has no mean: the first group that has one serves.
  if (merged->late && superseded && CountOf(record, sums, sum) == 0) sum = FirstGroup(record, sums);
  merged->count = CountOf(record, sums, sum);
  Parts parts{.mean = means[static_cast<size_t>(sum)],
              .own = own,
              .count = merged->count,
              // partial-W12a: a model that was superseded is not merged: it would come back
              // into others. partial-W12b: its progress is added to the mean.
              .merges = merged->late && !superseded && !takes,
              .base = merged->late && superseded && !takes ? member.base : nullptr};
  if (parts.mean == nullptr) {
    parts = {.mean = own, .own = own, .count = 0, .merges = false, .base = nullptr};
    merged->count = 0;
  }
  merged->mean = parts.mean;
  merged->is_of_both = parts.merges || parts.mean == own;
  merged->kept = parts.base != nullptr;
  MergeSpans(memory, kernels, parts, member.eager, version, to);
}

Found Merge(const RoundMemory& memory, SharedAtomics* words, const Kernels& kernels,
            const MergeOf& member, uint64_t version, std::span<void* const> to, Merged* merged) {
  const ResultLog log(&memory, words, &kernels);
  const uint64_t word = words->Load(memory.LogAt(version));
  const LogEntry entry = LogEntry::Of(word);
  if (entry.version != version) return entry.version < version ? Found::kNotYet : Found::kGone;
  // partial-W10: the pin is stored before the log is read again. A rank that looks for a buffer
  // finds the result in the log, or the pin.
  words->Store(memory.PinAt(member.self), entry.buffer + 1);
  const Found found = log.Read(version, {}, &merged->record);
  if (found == Found::kYes) {
    const std::byte* at = memory.Result(entry.buffer) + memory.record_bytes();
    std::vector<const std::byte*> means;
    // As many as there may be groups: those of members.
    for (int32_t sum = 0; sum < memory.size(); ++sum)
      means.push_back(at + memory.layout().length_bytes() * static_cast<size_t>(sum));
    MergeRecorded(memory, kernels, member, memory.Buffer(member.self, member.own.buffer), means, to,
                  merged);
  }
  // partial-W12a: the mean is held: it is the base of the next progress.
  if (found == Found::kYes) words->Store(memory.HoldAt(member.self), entry.buffer + 1);
  words->Store(memory.PinAt(member.self), 0);
  return found;
}

}  // namespace covey
