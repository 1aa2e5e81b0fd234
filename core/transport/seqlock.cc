#include "core/transport/seqlock.h"

#include <cstring>

namespace covey {

void SeqLock::Open(std::span<const Span> spans) {
  words_->Store(at_ + 2, spans.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    words_->Store(at_ + 3 + 2 * i, spans[i].offset);
    words_->Store(at_ + 4 + 2 * i, spans[i].length_bytes);
  }
}

// Closed it stays, also if another thread has closed it meanwhile.
void SeqLock::Move(uint64_t from, uint64_t to) {
  if (from != kClosed) words_->CompareExchange(at_, from, to);
}

void SeqLock::BeginChange() {
  const uint64_t word = words_->Load(at_);
  Move(word, word | 1);
}

void SeqLock::EndChange(uint64_t version) {
  words_->Store(at_ + 1, version);
  const uint64_t word = words_->Load(at_);
  // transport-L2: a new even number each time: a reader that slept through a change sees it.
  Move(word, (word | 1) + 1);
}

void SeqLock::Tell(uint64_t version) { words_->Store(at_ + 1, version); }

void SeqLock::Close() { words_->Store(at_, kClosed); }

SeqLock::Found SeqLock::Peek(const std::byte* base, std::span<void* const> to,
                             std::span<const uint64_t> lengths_bytes, uint64_t* version) const {
  const uint64_t before = words_->Load(at_);
  if (before == kClosed) return Found::kClosed;
  *version = words_->Load(at_ + 1);
  if (before == 0) return Found::kNothing;
  if (to.empty()) return Found::kWhole;
  // transport-L1: odd: the owner is at it, or was stopped there. Nothing is copied.
  if (before % 2 == 1) return Found::kChanging;
  if (words_->Load(at_ + 2) != to.size()) return Found::kNothing;
  for (size_t i = 0; i < to.size(); ++i) {
    if (words_->Load(at_ + 4 + 2 * i) != lengths_bytes[i]) return Found::kNothing;
    if (lengths_bytes[i] > 0)
      std::memcpy(to[i], base + words_->Load(at_ + 3 + 2 * i), lengths_bytes[i]);
  }
  // transport-L1: whole only if nothing was changed since the first look.
  return words_->Load(at_) == before ? Found::kWhole : Found::kChanging;
}

}  // namespace covey
