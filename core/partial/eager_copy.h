// The spans of a version that a member wants, copied while the version is made: each tile as soon
// as it is done, and while it is still in the cache. A span of gradients is the sum, a span of
// models the mean of the member's own group.
//
// The copy is right if the version is found in the log afterwards, in the buffer that it was
// copied from: results do not change while they can be found. A reader of the version looks
// for that anyhow, copies the tiles that are not there, and looks again (log.h, merge.h). A tile
// that this member has summed itself is copied from its own memory, after it has seen that the
// version is under way (tiles.h). So nothing here looks twice.
//
// Between the first tile and the end of the version the memory it goes to must not be written by
// another thread; where that may have happened, Forget.
#ifndef COVEY_CORE_PARTIAL_EAGER_COPY_H_
#define COVEY_CORE_PARTIAL_EAGER_COPY_H_

#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/memory.h"

namespace covey {

class EagerCopy {
 public:
  // All borrowed, outlive it.
  EagerCopy(int32_t self, const RoundMemory* memory, SharedAtomics* words, const Kernels* kernels)
      : self_(self), memory_(memory), words_(words), kernels_(kernels) {}

  // From now on to to[0], to[1], ... by span; empty: nowhere.
  void Aim(std::span<void* const> to);
  bool IsAimedAt(std::span<void* const> to) const;
  // Nothing lies there.
  void Forget() { version_ = 0; }

  // Some more of the version of `state`, whose buffer the caller has pinned; false: there is none.
  bool Work(const StateWord& state);
  // This member has summed tile `number` of the layout, of sum `sum` of the version of `state`.
  void Take(const StateWord& state, size_t sum, size_t number, const std::byte* from);

  // Whether tile `number` of the layout lies there.
  bool Has(uint64_t version, size_t number) const { return version == version_ && there_[number]; }

 private:
  void Look(const StateWord& state);
  void Copy(size_t number, const std::byte* from);

  int32_t self_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  const Kernels* kernels_;
  std::vector<std::byte*> to_;  // by span
  uint64_t version_ = 0;        // of all that follows; 0: none
  size_t sum_ = 0;              // that is wanted
  size_t next_ = 0;             // tiles below it are there
  std::vector<bool> there_;     // by tile of the layout
};

// How what is copied for a member is stored: cached, unless it is so large that nothing would stay.
Stores StoresOf(const RoundLayout& layout);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_EAGER_COPY_H_
