#include "core/partial/memory.h"

#include "core/base/check.h"

namespace covey {
namespace {

constexpr size_t Lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
constexpr size_t kLineWords = 8;

}  // namespace

RoundMemory::RoundMemory(const Shape& shape, const RoundLayout& layout)
    : shape_(shape),
      layout_(layout),
      sums_(shape.models.on() ? static_cast<size_t>(MostGroups(shape.models, shape.size)) : 1) {
  CHECK(result_buffers() < kMostResultBuffers && layout.tiles().size() * sums_ < kMostTiles);
  const auto members = static_cast<size_t>(shape.size);
  const size_t hyper_bytes = sizeof(double) * hypers();
  header_bytes_ = Lines(sizeof(SlotHeader) + hyper_bytes);
  record_bytes_ = Lines(sizeof(RecordHeader) + (sizeof(Contribution) + sizeof(uint64_t)) * members +
                        hyper_bytes);
  result_bytes_ = record_bytes_ + layout.length_bytes() * sums_;
  headers_ = 3 * kLine + Lines(sizeof(uint64_t) * members);
  buffers_ = headers_ + header_bytes_ * kSlotBuffers;
  results_ = buffers_ + layout.length_bytes() * kSlotBuffers;
  control_block_ = results_ + result_bytes_ * ResultsOf(0);
  inclusions_ = 2 * kLineWords;  // after the state word and the event count
  suspicion_ = inclusions_ + members;
  log_ = suspicion_ + members;
  cursors_ = log_ + log_words();
  done_ = cursors_ + result_buffers();
  snapshots_ = done_ + (layout.tiles().size() * sums_ + 1) * result_buffers();
  snapshots_ = (snapshots_ + kLineWords - 1) / kLineWords * kLineWords;  // read at every step
  end_ = snapshots_ + 2 + 5 * members;
}

// How many results lie in the block of member i.
size_t RoundMemory::ResultsOf(int32_t i) const {
  const auto members = static_cast<uint32_t>(shape_.size);
  const auto index = static_cast<uint32_t>(i);
  return (result_buffers() + members - 1 - index) / members;
}

size_t RoundMemory::BlockBytes(int32_t index) const {
  const size_t board_bytes = index == 0 ? Lines(end_ * sizeof(uint64_t)) : 0;
  return results_ + result_bytes_ * ResultsOf(index) + board_bytes;
}

std::byte* RoundMemory::Result(uint32_t buffer) const {
  const auto members = static_cast<uint32_t>(shape_.size);
  return Block(static_cast<int32_t>(buffer % members)) + results_ +
         result_bytes_ * (buffer / members);
}

uint64_t* RoundMemory::LogAt(uint64_t version) const {
  // partial-W10: the last version of all has a log word of its own: its members must get it.
  const bool is_kept = models().on() && models().IsSync(version);
  return LogWordAt(is_kept ? log() : static_cast<uint32_t>(version % log()));
}

std::vector<int32_t> RoundMemory::SumsOf(uint64_t version, bool final) const {
  const ModelRule& models = shape_.models;
  // partial-W12: final versions and versions of all have one sum for all members.
  if (!models.on() || final || models.IsSync(version))
    return std::vector<int32_t>(static_cast<size_t>(shape_.size));
  return GroupsOf(models, shape_.size, version);
}

}  // namespace covey
