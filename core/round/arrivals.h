// Whether a version may fire (rule W4): how many members have come, and how many are wanted.
//
// A member has arrived at v when its slot is sealed at a step of v or later; what it seals for an
// earlier step travels, but does not count. Members that have finished, left or died count neither
// as arrived nor as wanted. When all have finished, what is still sealed makes one more version.
//
// Arrivals are counted from the slot words by whoever waits, and the exchange of the turn word
// decides who fires: no member is *the* k-th, on whom all depend if it stops.
#ifndef COVEY_CORE_ROUND_ARRIVALS_H_
#define COVEY_CORE_ROUND_ARRIVALS_H_

#include <vector>

#include "core/round/memory.h"

namespace covey {

// Whom a version waits for. All ranks have the same.
struct AdmissionRule {
  int32_t count = 0;        // members wanted; 0: a part of those that are left
  int32_t permille = 1000;  // that part; rounded up, at least one
  Time grace = 0;           // how long a version waits for more once these have come

  int32_t Wanted(int32_t active) const;
};

// The member word.
struct Standing {
  uint64_t word = 0;

  bool finished() const { return word % 2 == 1; }
  uint64_t times() const { return (word + 1) / 2; }  // it has finished so often
};

class Arrivals {
 public:
  Arrivals(const AdmissionRule& rule, const RoundMemory* memory, SharedWords* words)
      : rule_(rule), memory_(memory), words_(words) {}

  // When `version`, the next one, may fire: at or before `now`, or later; kNever: others must come.
  Time FireAt(uint64_t version, const std::vector<bool>& lost, Time now);

 private:
  AdmissionRule rule_;
  const RoundMemory* memory_;
  SharedWords* words_;
  uint64_t met_version_ = 0;  // the last version this rank saw enough members at
  Time met_at_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_ROUND_ARRIVALS_H_
