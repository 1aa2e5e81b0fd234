#include "core/round/memory.h"

#include "core/base/check.h"

namespace covey {
namespace {

constexpr size_t Lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
constexpr size_t kLineWords = 8;

}  // namespace

RoundMemory::RoundMemory(const Shape& shape, const RoundLayout& layout)
    : shape_(shape), layout_(layout) {
  CHECK(result_buffers() < kMostResultBuffers && layout.shards().size() < kMostShards);
  const auto members = static_cast<size_t>(shape.size);
  const size_t hyper_bytes = sizeof(double) * hypers();
  header_bytes_ = Lines(sizeof(SlotHeader) + hyper_bytes);
  record_bytes_ = Lines(sizeof(RecordHeader) + (sizeof(Contribution) + sizeof(uint64_t)) * members +
                        hyper_bytes);
  headers_ = 3 * kLine + Lines(sizeof(uint64_t) * members);
  buffers_ = headers_ + header_bytes_ * kSlotBuffers;
  results_ = buffers_ + layout.length_bytes() * kSlotBuffers;
  board_ = results_ + (record_bytes_ + layout.length_bytes()) * ResultsOf(0);
  picks_ = 2 * kLineWords;  // after the turn word and the bell
  attendance_ = picks_ + members;
  log_ = attendance_ + members;
  cursors_ = log_ + log();
  done_ = cursors_ + result_buffers();
  end_ = done_ + (layout.shards().size() + 1) * result_buffers();
}

// How many results lie in the block of member i.
size_t RoundMemory::ResultsOf(int32_t i) const {
  const auto members = static_cast<uint32_t>(shape_.size);
  const auto index = static_cast<uint32_t>(i);
  return (result_buffers() + members - 1 - index) / members;
}

size_t RoundMemory::BlockBytes(int32_t index) const {
  const size_t results = (record_bytes_ + layout_.length_bytes()) * ResultsOf(index);
  return results_ + results + (index == 0 ? Lines(end_ * sizeof(uint64_t)) : 0);
}

std::byte* RoundMemory::Result(uint32_t buffer) const {
  const auto members = static_cast<uint32_t>(shape_.size);
  const size_t bytes = record_bytes_ + layout_.length_bytes();
  return Bytes(static_cast<int32_t>(buffer % members), results_ + bytes * (buffer / members));
}

}  // namespace covey
