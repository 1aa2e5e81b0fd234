// Members drawn for each version from a seed that all have: one of them suffices to let it fire
// ("majority" of eager-SGD: one is drawn, so half of the members have come on average; RNA: two).
//
// Every counted member has a priority in each version, and the lowest ones are drawn: a member that
// leaves, dies or is overdue is replaced by the next, on all members alike, without a message.
#ifndef COVEY_CORE_PARTIAL_DRAWN_H_
#define COVEY_CORE_PARTIAL_DRAWN_H_

#include <cstdint>
#include <vector>

namespace covey {

struct Counted {
  int32_t member = 0;
  bool arrived = false;
};

// Whether one of the `count` drawn among `counted` has arrived.
bool HasOneDrawnArrived(const std::vector<Counted>& counted, int32_t count, uint64_t seed,
                        uint64_t version);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_DRAWN_H_
