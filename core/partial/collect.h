// The members of a version: decided once for each, by the rank that looks first (partial-W5).
//
// A member's inclusion word holds its decision in the version under way. Each member that works for
// the version carries each decision through to its end and sees the same; a rank that was stopped
// half-way finds its exchanges refused, because words carry versions and steps.
//
//   inclusion           seen                           exchange       inclusion after
//   of an earlier one   the slot is published          inclusion      asked(buffer, step)
//   of an earlier one   it is not; its owner lives     inclusion      out
//   of an earlier one   it is not; its owner is dead   inclusion      gone
//   asked               the slot is published so       slot: taken    asked
//   asked               the slot is taken so           inclusion      in
//   asked               the slot is something else     inclusion      out
//   in, out, gone                                      none: that is the answer
//   of a later one                                     none: the version is over
//
// Models are on offer also when they were taken by an earlier version, unless they are too old, or
// their owner is dead; and they are replaced, not added to:
//
//   of an earlier one   it is published or taken       inclusion      asked(buffer, step)
//   asked               the slot has something newer   inclusion      asked(that)
//
// "Seen" means seen before and after the inclusion was read: a slot seen only before may have been
// published, asked for and taken since then.
#ifndef COVEY_CORE_PARTIAL_COLLECT_H_
#define COVEY_CORE_PARTIAL_COLLECT_H_

#include <vector>

#include "core/partial/memory.h"

namespace covey {

// The decision of every member in the version of `state`, by index. `lost`: members known to be
// dead. False: the version is over.
bool Collect(const RoundMemory& memory, SharedAtomics* words, const std::vector<bool>& lost,
             const StateWord& state, std::vector<Inclusion>* inclusions);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_COLLECT_H_
