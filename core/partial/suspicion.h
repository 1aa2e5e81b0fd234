// The members that a version waits for (partial-W8): all but those that were missing when max_wait
// was over, until they keep up again.
//
//   missing before   in the version that ends                    missing after
//   0                fresh; or exempt; or it had not expired    0
//   0                not fresh, and it had expired               3: overdue
//   n                fresh                                       n - 1
//   n                exempt                                     0
//   n                neither                                     3
//
// Models: an overdue member is judged at the versions of all. It keeps up if its model is of the
// last half of the versions between two of them. In the others the first to come is always fresh.
//
// A function of data on which all members that work for a version agree, so all write the same
// words and records.
#ifndef COVEY_CORE_PARTIAL_SUSPICION_H_
#define COVEY_CORE_PARTIAL_SUSPICION_H_

#include <vector>

#include "core/partial/memory.h"

namespace covey {

// Of every member as of the end of the version of `state`, with the decisions `inclusions`. Right
// while that version is under way; else worthless.
std::vector<Suspicion> AttendanceAfter(const RoundMemory& memory, SharedAtomics* words,
                                       const StateWord& state,
                                       const std::vector<Inclusion>& inclusions);

// Makes it known, before the version ends; nothing when it is.
void UpdateSuspicion(const RoundMemory& memory, SharedAtomics* words, const StateWord& state,
                     const std::vector<Inclusion>& inclusions);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_SUSPICION_H_
