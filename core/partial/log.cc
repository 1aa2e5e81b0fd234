#include "core/partial/log.h"

#include <cstring>

#include "core/base/check.h"

namespace covey {

// The order matters: a buffer found in the log was pinned before it was found.
uint32_t ResultLog::FreeBuffer() const {
  std::vector<bool> used(memory_->result_buffers(), false);
  for (uint32_t i = 0; i < memory_->log_words(); ++i) {
    const LogEntry entry = LogEntry::Of(words_->Load(memory_->LogWordAt(i)));
    if (entry.version > 0) used[entry.buffer] = true;
  }
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const uint64_t pin = words_->Load(memory_->PinAt(i));
    // partial-W6: a rank that was stopped in a tile may still write the buffer it has pinned.
    if (pin > 0) used[pin - 1] = true;
    const uint64_t hold = words_->Load(memory_->HoldAt(i));
    // partial-W10: a trainer reads the held buffer in place.
    if (hold > 0) used[hold - 1] = true;
  }
  for (uint32_t buffer = 0; buffer < memory_->result_buffers(); ++buffer)
    if (!used[buffer]) return buffer;
  CHECK(false, "there is a buffer more than can be in use");
  return 0;
}

void ResultLog::Enter(uint64_t version, uint32_t buffer) {
  uint64_t* word = memory_->LogAt(version);
  const uint64_t before = words_->Load(word);
  if (LogEntry::Of(before).version < version)
    words_->CompareExchange(word, before, LogEntry{version, buffer}.Word());
}

bool ResultLog::Has(uint64_t version) const {
  return LogEntry::Of(words_->Load(memory_->LogAt(version))).version == version;
}

void ReadRecord(const RoundMemory& memory, const std::byte* from, RoundRecord* record) {
  std::memcpy(&record->header, from, sizeof(RecordHeader));
  const std::byte* at = from + sizeof(RecordHeader);
  record->contributions.resize(static_cast<size_t>(memory.size()));
  const size_t bytes = sizeof(Contribution) * record->contributions.size();
  std::memcpy(record->contributions.data(), at, bytes);
  at += bytes;
  record->missing.resize(record->contributions.size());
  std::memcpy(record->missing.data(), at, sizeof(uint64_t) * record->missing.size());
  at += sizeof(uint64_t) * record->missing.size();
  record->hypers.resize(memory.hypers());
  if (!record->hypers.empty())
    std::memcpy(record->hypers.data(), at, sizeof(double) * record->hypers.size());
  if (record->header.leader < 0) record->hypers.clear();
}

Found ResultLog::Read(uint64_t version, std::span<void* const> to, RoundRecord* record,
                      const EagerCopy* eager) const {
  const uint64_t word = words_->Load(memory_->LogAt(version));
  const LogEntry entry = LogEntry::Of(word);
  if (entry.version != version) return entry.version < version ? Found::kNotYet : Found::kGone;
  const std::byte* from = memory_->Result(entry.buffer);
  if (record != nullptr) ReadRecord(*memory_, from, record);
  if (!to.empty()) CopySpans(version, from + memory_->record_bytes(), to, eager);
  // partial-W10: a copy is right only if the result can still be found after it.
  return words_->Load(memory_->LogAt(version)) == word ? Found::kYes : Found::kGone;
}

Found ResultLog::Hold(int32_t self, uint64_t version, const std::byte** result) const {
  const uint64_t word = words_->Load(memory_->LogAt(version));
  const LogEntry entry = LogEntry::Of(word);
  Found found = entry.version < version ? Found::kNotYet : Found::kGone;
  if (entry.version == version) {
    // partial-W10: Dekker with FreeBuffer: that sees the hold, or this the next version.
    words_->Store(memory_->HoldAt(self), entry.buffer + 1);
    // partial-W10: held only if it can still be found: else the buffer was free before the hold.
    if (words_->Load(memory_->LogAt(version)) == word) found = Found::kYes;
  }
  *result = memory_->Result(entry.buffer);
  if (found != Found::kYes) Release(self);
  return found;
}

void ResultLog::CopySpans(uint64_t version, const std::byte* from, std::span<void* const> to,
                          const EagerCopy* eager) const {
  const RoundLayout& layout = memory_->layout();
  for (size_t i = 0; i < layout.tiles().size(); ++i) {
    const RoundLayout::Tile& tile = layout.tiles()[i];
    if (to[tile.span] == nullptr || (eager != nullptr && eager->Has(version, i))) continue;
    const size_t offset = tile.offset_bytes - layout.offsets_bytes()[tile.span];
    kernels_->copy(static_cast<std::byte*>(to[tile.span]) + offset, from + tile.offset_bytes,
                   tile.count * SizeOf(tile.dtype), StoresOf(layout));
  }
}

}  // namespace covey
