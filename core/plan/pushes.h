// The bytes that a rank must push where memory is mirrored (core/transport/mirrored.h), derived
// from the schedules of all ranks: whatever a peer reads of the own landing slots, in the state in
// which it reads it.
//
// A peer that has waited for tick k of this rank reads what this rank wrote before it signalled k.
// So every range read is traced back to the write it sees, and pushed before the first signal after
// that write. Algorithms need not know about it. Pure.
#ifndef COVEY_CORE_PLAN_PUSHES_H_
#define COVEY_CORE_PLAN_PUSHES_H_

#include <span>

#include "core/plan/schedule.h"

namespace covey {

// `schedules` are those of all ranks of the problem, by group index; returns that of problem.me
// with its pushes. REQUIRES: they reach landing slots only, of other ranks.
Schedule WithPushes(const Problem& problem, std::span<const Schedule> schedules);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_PUSHES_H_
