// A member's own slot (partial-W2, partial-W3): three buffers and one word.
//
// The trainer writes the open buffer and publishes it. Ranks that make a version collect published
// buffers (collect.h), without the owner's help. No rank waits: a buffer that is not published is
// not in the version and travels with a later one. The owner's thread only.
//
//   word               event       action                        word after
//   open               Publish     header                        published(open buffer)
//   published, by CAS  Publish     open, add, header             published(same buffer)
//   published, by CAS  collected   the buffer is only read       taken
//   taken              Publish     its inclusion says `in` (3)   published(open buffer)
//
// A step with nothing to give is an empty contribution (partial-W11): it arrives, and is no
// contribution. A buffer of empty contributions alone has undefined content, and is never read.
//
//   open, taken        Skip        as Publish; no content        published(open buffer)
//   published, by CAS  Skip        only how far it has come      published(same buffer)
//   empty, by CAS      Publish     as if it were open            published(open buffer)
//
// A member that leaves for good may take back a contribution that no version has collected, to give
// it elsewhere:
//
//   published, by CAS  Retract     the buffer stays              open
//
// Models replace each other instead, and one that was taken is taken by later versions again until
// the next comes:
//
//   open               Replace     header                        published(open buffer)
//   published, by CAS  Replace     header; the old is free       published(open buffer)
//   taken              Replace     header                        published(open buffer), then (4)
//
// Invariants:
//  1. A step is in the slot until it is collected, then in exactly one version.
//  2. A taken buffer is written again only after its version has ended.
//  3. `taken` is overwritten only once the inclusion of that version says that it was taken:
//     a member that collects after the owner publishes again must not take the slot for one that
//     was not.
//  4. Models: once the word says something else, the owner looks whether the version under way has
//     asked for the old buffer, says that it is in, and keeps it until that version has ended.
//     Before would be too early: a member may still ask, and see it taken. Afterwards no member
//     comes to `in` that had not asked before.
// Of three buffers one is on offer, one at most is read by the version under way, one is open.
#ifndef COVEY_CORE_PARTIAL_SLOT_H_
#define COVEY_CORE_PARTIAL_SLOT_H_

#include <array>
#include <span>

#include "core/base/kernels.h"
#include "core/partial/memory.h"

namespace covey {

class Slot {
 public:
  // All borrowed, outlive the slot.
  Slot(int32_t self, const RoundMemory* memory, SharedAtomics* words, const Kernels* kernels)
      : self_(self), memory_(memory), words_(words), kernels_(kernels) {}

  // The buffer to write the next contribution to, all of it: its content is undefined.
  std::byte* open() const { return memory_->Buffer(self_, open_); }

  // Publishes the open buffer as step `step`, together with earlier steps that no version has
  // collected. REQUIRES: step grows; hypers.size() is the memory's.
  void Publish(uint64_t step, std::span<const double> hypers);
  // Publishes that there is nothing at step `step`, beside what is there.
  void Skip(uint64_t step);
  // The buffer of a contribution that will be in no version. Null: there is nothing,
  // or it was collected. The buffer stays as it is until Publish or Skip.
  const std::byte* Retract();
  // As Publish, instead of what was there.
  bool Replace(uint64_t step, std::span<const double> hypers);

  // Its offer. REQUIRES: it has published.
  SlotWord offered() const { return SlotWord::Of(words_->Load(memory_->SlotAt(self_))); }

 private:
  bool TakeBack(const SlotWord& slot);
  void Add(uint32_t to, uint32_t from);
  void Acknowledge(const SlotWord& taken);
  void ChooseOpen(uint32_t published);
  void WriteHeader(uint32_t buffer, const Contribution& content, std::span<const double> hypers);

  int32_t self_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  const Kernels* kernels_;
  uint32_t open_ = 0;
  std::array<uint64_t, kSlotBuffers> busy_until_{};  // the version that reads it; 0 = none
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_SLOT_H_
