// A member's model after a version of models: what its group's mean and its own become.
//
//   its own, as it published it last    its model
//   is in the mean                      the mean
//   is not: it was late                 (count * mean + its own) / (count + 1)
//
// `count` models are in the mean; an older one of its own may be one of them, as in the paper.
// Which of the two holds is what the version's record says, never a guess.
//
// The result's buffer is pinned while it is read, so it takes as long as it takes. The member's own
// model is read from its slot, which keeps it until it publishes again: what is written may be
// anything, also the buffer that it will publish next.
#ifndef COVEY_CORE_ROUND_MERGE_H_
#define COVEY_CORE_ROUND_MERGE_H_

#include <span>

#include "core/round/log.h"
#include "core/round/memory.h"
#include "core/run/kernels.h"

namespace covey {

struct Merged {
  uint64_t version = 0;  // with this one
  int32_t count = 0;     // models in its mean
  bool late = false;     // this member's own was not one of them
  uint64_t step = 0;     // where it stands now; see Rounds::Merge
  RoundRecord record;
};

// A member, the model it published last, and how many shards lie where they are to be already.
struct MergeOf {
  int32_t self = 0;
  SlotWord own = {};
  size_t shards = 0;
};

// Merges with `version`, to the spans to[0], to[1], ... (an address may be null); *merged is what
// was done. Nothing is written unless kYes. REQUIRES: this member works for no version now.
Found Merge(const RoundMemory& memory, SharedWords* words, const Kernels& kernels,
            const MergeOf& member, uint64_t version, std::span<void* const> to, Merged* merged);

// Where a merge writes: cached, unless it is so large that nothing of it would stay.
Stores StoresOf(const RoundLayout& layout);

// What of a merge is done while its version is under way, by a member whose model is in it: the
// mean's shards are copied as soon as they are done, and still in the cache. To the buffer that the
// member publishes next, which nobody else reads.
class EarlyMerge {
 public:
  EarlyMerge(int32_t self, const RoundMemory* memory, SharedWords* words, const Kernels* kernels)
      : self_(self), memory_(memory), words_(words), kernels_(kernels) {}

  // Some more of the version of `turn`; false: there are none.
  bool Work(const Turn& turn, std::byte* open);
  // That buffer is another, or is written otherwise.
  void Forget() { version_ = 0; }

  // The first so many are there.
  size_t ShardsOf(uint64_t version) const { return version == version_ ? next_ : 0; }

 private:
  int32_t self_;
  const RoundMemory* memory_;
  SharedWords* words_;
  const Kernels* kernels_;
  uint64_t version_ = 0;
  size_t sum_ = 0, next_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_ROUND_MERGE_H_
