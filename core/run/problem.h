// The common knowledge of all members once all have begun, read from their begins: the problem a
// schedule is built for, and the memory of a result whose size only the begins tell.
//
// Pure but for AllocateResult, which allocates. REQUIRES: every member's tick is >= 1 here.
#ifndef COVEY_CORE_RUN_PROBLEM_H_
#define COVEY_CORE_RUN_PROBLEM_H_

#include "core/plan/schedule.h"
#include "core/run/exchange.h"

namespace covey {

// Whether all members' tensors lie in their regions, alike; whether all can read all of them; how
// many segments every member has staged, at least 1: the schedule sees to members that have none.
struct Placed {
  bool in_arena = false;
  bool readable = false;
  uint32_t staged = 1;
};
Placed PlacedBy(const Exchange& exchange);

// Equal on every member but for `me`, and for `cache_bytes`, which is this rank's.
Problem ProblemOf(const Exchange& exchange, uint64_t cache_bytes);

// Where the kind gathers: the request's `rows` and `gathered`, and the exchange's output.
void AllocateResult(Exchange* exchange);

// Whether communicators can do what the request asks: those kinds, ops, types and scales, and a
// payload of `least_bytes` at least. Equal on every member.
bool FitsCommunicator(const Request& request, uint64_t least_bytes);

// The input as one message. A reducescatter's is ordered by receiver: the parts of all tensors for
// member 0, then those for member 1, ..., so that schedules need not know of tensors.
void AddInput(const Request& request, Spans* message);

}  // namespace covey
#endif  // COVEY_CORE_RUN_PROBLEM_H_
