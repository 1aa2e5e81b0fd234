// A member's model after a version of models, from its group's mean and its own.
//
//   its own, as it published it last    its model
//   is in the mean                      the mean
//   is not: it was late                 (count * mean + its own) / (count + 1)
//   is not, and a version of all has    the mean + (its own - what it began from)
//   come after its step
//   is not, and others have ended       the mean
//   with that version (EpochEnd::GoOnWithout)
//
// The mean is that of its group. A group none of whose models is in the version has none: a member
// that a version of all has superseded takes the mean of the first group that has one.
//
// A model that a version of all has superseded must not come back into others by a merge. Its rank
// goes on from the mean with its progress since it last began from a mean, unless some version has
// had its model, and the progress with it. So its work counts once: in its own model now, and in
// those of others when it offers that at once (Rounds::OfferAgain). Only parameters
// travel: the optimizer's momenta and the model's buffers are each rank's own, always.
//
// `count` models are in the mean; an older one of its own may be one of them, as in the paper.
// Which of the two holds is what the version's record says, never a guess.
//
// The result's buffer is pinned while it is read, so it takes as long as it takes. The member's own
// model is read from its slot, which keeps it until it publishes again: what is written may be
// anything, also the buffer that it will publish next.
#ifndef COVEY_CORE_PARTIAL_MERGE_H_
#define COVEY_CORE_PARTIAL_MERGE_H_

#include <span>
#include <vector>

#include "core/base/kernels.h"
#include "core/partial/eager_copy.h"
#include "core/partial/log.h"
#include "core/partial/memory.h"

namespace covey {

struct Merged {
  uint64_t version = 0;             // with this one
  int32_t count = 0;                // models in its mean
  bool late = false;                // this member's own was not one of them
  bool of_all = false;              // it is a mean of all
  uint64_t step = 0;                // where it stands now; see Rounds::Merge
  const std::byte* mean = nullptr;  // where it lies
  bool kept = false;                // it became the mean and its progress,
  bool is_of_both = false;          // or it became (count * mean + its own) / (count + 1)
  RoundRecord record;
};

// A member, the model it published last, and the part of the mean that is in place already.
struct MergeOf {
  int32_t self = 0;
  SlotWord own = {};
  const EagerCopy* eager = nullptr;  // null: nothing
  bool takes = false;                // the mean, if it was late: others have ended with it
  // The model that its work began from, laid out as a buffer; null: not known, or some version has
  // had its model.
  const std::byte* base = nullptr;
};

// A group of members with one sum, of a record of models: how many of their models are in it; and
// the first group that has one. REQUIRES: one has.
int32_t CountOf(const RoundRecord& record, const std::vector<int32_t>& sums, int32_t sum);
int32_t FirstGroup(const RoundRecord& record, const std::vector<int32_t>& sums);

// The same for ranks with or without common memory: merges with the version of merged->record.
// `own`: the member's own model; `means`: by group, null: it is not here, and the own model stands.
void MergeRecorded(const RoundMemory& geometry, const Kernels& kernels, const MergeOf& member,
                   const std::byte* own, std::span<const std::byte* const> means,
                   std::span<void* const> to, Merged* merged);

// Merges with `version`, to the spans to[0], to[1], ... (an address may be null); *merged is what
// was done. Nothing is written unless kYes; then the member holds the mean. REQUIRES: this member
// works for no version now.
Found Merge(const RoundMemory& memory, SharedAtomics* words, const Kernels& kernels,
            const MergeOf& member, uint64_t version, std::span<void* const> to, Merged* merged);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_MERGE_H_
