// Proves that an algorithm is right for a problem, for all interleavings of the ranks at once.
//
// The schedules of all ranks are built and run on symbolic memory (core/plan/machine.h). Proven:
//  - every wait is satisfied (no deadlock);
//  - plan-S2: data of another rank is read only after it was written, and plan-S3: nothing is
//    overwritten that a rank may still read, also by the next exchange on the channel;
//  - plan-S4: at the end of a rank's steps no rank uses its memory any more; plan-S5: all ranks use
//    the same ticks and slots, every tick higher than the one before; the schedule says if ranks
//    use each other's memory;
//  - agree-N4: user memory is written only once every member's begin is known;
//  - no step reaches beyond a buffer, writes an input or reads bytes that no rank wrote;
//  - where memory is mirrored, data that a rank reads of a peer's landing slots was pushed to it
//    before a signal it has waited for, and nothing is pushed over what it may still read;
//  - every byte of every output is what the operation says it is: in a reduction every rank's
//    contribution once, combined alike in every byte on every rank (so all ranks hold the same
//    bits), in rank order or host by host, and, unless the algorithm says otherwise, one after the
//    other (kernels-K1); where ranks average with neighbors, the contributions of those a rank
//    takes, likewise.
//
// Costs steps times ranks, whatever the sizes: bytes are handled in ranges. Pure; used by tests,
// not in production.
#ifndef COVEY_CORE_PLAN_VERIFY_H_
#define COVEY_CORE_PLAN_VERIFY_H_

#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/plan/algorithm.h"
#include "core/plan/machine.h"

namespace covey {

// The schedule of every rank of `problem` (whose `me` is ignored), with its pushes where memory is
// mirrored.
std::vector<Schedule> BuildAll(const Algorithm& algorithm, Problem problem);

// Ordinary and, where the operation can be done so, in place. REQUIRES: CanDo(algorithm, problem).
Status Verify(const Algorithm& algorithm, const Problem& problem);

// The same for schedules as they stand. The message names rank, step and reason.
Status VerifySchedules(const Problem& problem, std::span<const Schedule> schedules,
                       Association association, Machine::Options options);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_VERIFY_H_
