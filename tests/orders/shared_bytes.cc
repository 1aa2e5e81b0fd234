#include "tests/orders/shared_bytes.h"

#include <cstring>
#include <utility>

namespace covey {
namespace {

// Bytes that a thread sees early.
enum : size_t { kNothing, kAll, kFirstHalf, kSecondHalf, kEverySecond, kWays };

}  // namespace

SharedBytes::SharedBytes(WeakMemory* memory, std::vector<std::byte*> mappings, size_t length_bytes)
    : memory_(memory),
      mappings_(std::move(mappings)),
      length_bytes_(length_bytes),
      known_(mappings_.size()) {}

uint64_t* SharedBytes::At(int thread, size_t offset) const {
  return reinterpret_cast<uint64_t*>(mappings_[static_cast<size_t>(thread)] + offset);
}

void SharedBytes::Watch(size_t offset, size_t length_bytes) {
  ranges_.push_back({.offset = offset, .length_bytes = length_bytes, .first = cells_.size()});
  for (size_t at = offset; at < offset + length_bytes; at += sizeof(uint64_t)) {
    cells_.push_back(
        {.offset = at, .location = kNone, .shown = std::vector<uint32_t>(mappings_.size())});
    for (std::vector<uint64_t>& known : known_) known.push_back(0);
  }
  for (size_t thread = 0; thread < mappings_.size(); ++thread)
    std::memset(mappings_[thread] + offset, 0, length_bytes);
}

bool SharedBytes::Find(const void* address, size_t* offset) const {
  for (const std::byte* mapping : mappings_) {
    const auto distance =
        reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(mapping);
    if (distance >= length_bytes_) continue;
    *offset = distance;
    return true;
  }
  return false;
}

bool SharedBytes::Publish(int thread) {
  std::vector<uint64_t>& known = known_[static_cast<size_t>(thread)];
  bool is_ordered = true;
  for (const Range& range : ranges_) {
    const uint64_t* now = At(thread, range.offset);
    if (std::memcmp(now, &known[range.first], range.length_bytes) == 0) continue;
    for (size_t i = 0; i < range.length_bytes / sizeof(uint64_t); ++i) {
      const size_t number = range.first + i;
      if (now[i] == known[number]) continue;
      Cell& cell = cells_[number];
      if (cell.location == kNone) {
        cell.location = memory_->Add(0);
        written_.push_back(number);
      }
      known[number] = now[i];
      is_ordered &= !memory_->Write(thread, cell.location, now[i]);
      cell.shown[static_cast<size_t>(thread)] = memory_->Newest(cell.location);
    }
  }
  return is_ordered;
}

void SharedBytes::Show(int thread, Cell* cell, uint32_t message) {
  const uint64_t value = memory_->Show(thread, cell->location, message);
  cell->shown[static_cast<size_t>(thread)] = message;
  *At(thread, cell->offset) = value;
  known_[static_cast<size_t>(thread)][static_cast<size_t>(cell - cells_.data())] = value;
}

void SharedBytes::Arrive(int thread, Choices* choices) {
  std::vector<Cell*> early;
  for (const size_t number : written_) {
    Cell& cell = cells_[number];
    const uint32_t shown = cell.shown[static_cast<size_t>(thread)];
    const uint32_t oldest = memory_->Oldest(thread, cell.location);
    if (oldest > shown) Show(thread, &cell, oldest);
    if (memory_->Newest(cell.location) > std::max(shown, oldest)) early.push_back(&cell);
  }
  if (early.empty()) return;
  const size_t way = choices->Choose(Question::kBytes, early.size() == 1 ? 2 : size_t{kWays});
  for (size_t i = 0; i < early.size(); ++i) {
    const bool is_first = i < early.size() / 2;
    const bool is_seen = way == kAll || (way == kFirstHalf && is_first) ||
                         (way == kSecondHalf && !is_first) || (way == kEverySecond && i % 2 == 0);
    if (is_seen) Show(thread, early[i], memory_->Newest(early[i]->location));
  }
}

}  // namespace covey
