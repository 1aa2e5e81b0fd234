// Who is in a version: decided once for each member, by whoever looks first (partial-W5).
//
// A member's pick word holds its fate in the version under way. Everybody who works for the version
// carries each fate through to its end and sees the same; a rank that was stopped half-way finds
// its exchanges refused, because words carry versions and steps.
//
//   pick                seen                           exchange       pick after
//   of an earlier one   the slot is sealed             pick           asked(buffer, step)
//   of an earlier one   it is not; its owner lives     pick           out
//   of an earlier one   it is not; its owner is dead   pick           gone
//   asked               the slot is sealed so          slot: taken    asked
//   asked               the slot is taken so           pick           in
//   asked               the slot is something else     pick           out
//   in, out, gone                                      none: that is the answer
//   of a later one                                     none: the version is over
//
// Models are on offer also when they were taken by an earlier version, unless they are too old, or
// their owner is dead; and they are replaced, not added to:
//
//   of an earlier one   the slot is sealed or taken    pick           asked(buffer, step)
//   asked               the slot has something newer   pick           asked(that)
//
// "Seen" means seen before and after the pick was read: a slot seen only before may have been
// sealed, asked for and taken since then.
#ifndef COVEY_CORE_PARTIAL_COLLECT_H_
#define COVEY_CORE_PARTIAL_COLLECT_H_

#include <vector>

#include "core/partial/memory.h"

namespace covey {

// The fate of every member in the version of `turn`, by index. `lost`: members known to be dead.
// False: the version is over.
bool Collect(const RoundMemory& memory, SharedAtomics* words, const std::vector<bool>& lost,
             const Turn& turn, std::vector<Pick>* picks);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_COLLECT_H_
