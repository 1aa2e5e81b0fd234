#include "core/partial/slot.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {
namespace {

Contribution ContentOf(uint64_t step) {
  return {.first = step, .last = step, .count = 1, .arrived = step};
}

}  // namespace

// Whether its publication is in no version, nor will be.
bool Slot::TakeBack(const SlotWord& slot) {
  uint64_t* word = memory_->SlotAt(self_);
  const SlotWord back{SlotState::kOpen, slot.buffer, slot.step};
  // partial-W2: by exchange: another rank may be collecting this publication.
  return slot.state == SlotState::kPublished &&
         words_->CompareExchange(word, slot.Word(), back.Word());
}

void Slot::Publish(uint64_t step, std::span<const double> hypers) {
  uint64_t* word = memory_->SlotAt(self_);
  SlotWord slot = SlotWord::Of(words_->Load(word));
  CHECK(step > slot.step, "steps grow");
  if (TakeBack(slot)) {
    Contribution content = memory_->Header(self_, slot.buffer)->content;
    // partial-W11: an empty contribution's buffer is undefined: the gradient replaces it.
    if (content.count > 0) {
      // partial-W3: all buckets are added before the one word is published again.
      Add(slot.buffer, open_);
      content.last = content.arrived = step;
      ++content.count;
      WriteHeader(slot.buffer, content, hypers);
      return words_->Store(word, SlotWord{SlotState::kPublished, slot.buffer, step}.Word());
    }
  }
  slot = SlotWord::Of(words_->Load(word));
  // partial-W2: before `taken` is overwritten its inclusion must say `in`.
  if (slot.state == SlotState::kTaken) Acknowledge(slot);
  WriteHeader(open_, ContentOf(step), hypers);
  words_->Store(word, SlotWord{SlotState::kPublished, open_, step}.Word());
  ChooseOpen(open_);
}

void Slot::Skip(uint64_t step) {
  uint64_t* word = memory_->SlotAt(self_);
  SlotWord slot = SlotWord::Of(words_->Load(word));
  CHECK(step > slot.step, "steps grow");
  if (TakeBack(slot)) {
    // partial-W11: an empty contribution only moves how far this member has come.
    memory_->Header(self_, slot.buffer)->content.arrived = step;
    return words_->Store(word, SlotWord{SlotState::kPublished, slot.buffer, step}.Word());
  }
  slot = SlotWord::Of(words_->Load(word));
  if (slot.state == SlotState::kTaken) Acknowledge(slot);
  memory_->Header(self_, open_)->content = {.arrived = step};
  words_->Store(word, SlotWord{SlotState::kPublished, open_, step}.Word());
  ChooseOpen(open_);
}

const std::byte* Slot::Retract() {
  // partial-W2: a publication that was collected is in a version and cannot go elsewhere.
  const SlotWord slot = offered();
  if (!TakeBack(slot)) return nullptr;
  const bool is_empty = memory_->Header(self_, slot.buffer)->content.count == 0;
  return is_empty ? nullptr : memory_->Buffer(self_, slot.buffer);
}

bool Slot::Replace(uint64_t step, std::span<const double> hypers) {
  uint64_t* word = memory_->SlotAt(self_);
  SlotWord before = SlotWord::Of(words_->Load(word));
  CHECK(step > before.step, "steps grow");
  WriteHeader(open_, ContentOf(step), hypers);
  const SlotWord next{SlotState::kPublished, open_, step};
  const bool was_taken = before.state != SlotState::kPublished ||
                         !words_->CompareExchange(word, before.Word(), next.Word());
  if (was_taken) {
    before = SlotWord::Of(words_->Load(word));
    // partial-W2a: replaced first: before, a version may still ask for the old model. Its buffer is
    // kept while that version reads it.
    words_->Store(word, next.Word());
    Acknowledge(before);
  }
  ChooseOpen(open_);
  return was_taken;
}

void Slot::WriteHeader(uint32_t buffer, const Contribution& content,
                       std::span<const double> hypers) {
  CHECK(hypers.size() == memory_->hypers(), "as many hyper-parameters as were agreed");
  memory_->Header(self_, buffer)->content = content;
  std::copy(hypers.begin(), hypers.end(), memory_->HeaderHypers(self_, buffer).begin());
}

void Slot::Add(uint32_t to, uint32_t from) {
  for (const RoundLayout::Tile& tile : memory_->layout().tiles()) {
    std::byte* sum = memory_->Buffer(self_, to) + tile.offset_bytes;
    const std::byte* inputs[] = {sum, memory_->Buffer(self_, from) + tile.offset_bytes};
    kernels_->reduce({.dtype = tile.dtype, .op = Op::kSum},
                     std::span<const std::byte* const>(inputs),
                     std::span<std::byte* const>(&sum, 1), tile.count, Stores::kCached);
  }
}

// The version that took the slot needs to know it once the word says something else. (No inclusion
// names a buffer that was open.)
void Slot::Acknowledge(const SlotWord& taken) {
  uint64_t* word = memory_->InclusionAt(self_);
  Inclusion inclusion = Inclusion::Of(words_->Load(word));
  if (inclusion.decision == Decision::kAsked && inclusion.Names(taken)) {
    Inclusion in = inclusion;
    in.decision = Decision::kIn;
    // partial-W2: the inclusion says `in` before `taken` is replaced: a late collector reads it
    // there.
    words_->CompareExchange(word, inclusion.Word(), in.Word());
    inclusion = Inclusion::Of(words_->Load(word));
  }
  // Another inclusion means that the version is over already.
  // partial-W2: the version under way reads this buffer until it ends.
  if (inclusion.decision == Decision::kIn && inclusion.Names(taken))
    busy_until_[taken.buffer] = inclusion.version;
}

// Of the other two one at most is read by a version under way: versions run one after the other.
void Slot::ChooseOpen(uint32_t published) {
  const uint64_t executed = StateWord::Of(words_->Load(memory_->StateAt())).executed;
  for (uint32_t buffer = 0; buffer < kSlotBuffers; ++buffer) {
    // partial-W2: a taken buffer is read until its version has ended.
    if (buffer == published || busy_until_[buffer] > executed) continue;
    open_ = buffer;
    return;
  }
  CHECK(false, "two versions read this slot at once");
}

}  // namespace covey
