// How many replicas are a quorum: more than half of all, or all that live. Of an even number the
// first replica counts one half more, so that of two halves one goes on: two that do not know of
// each other never do. Pure.
#ifndef COVEY_CORE_REPLICATED_QUORUM_H_
#define COVEY_CORE_REPLICATED_QUORUM_H_

#include <vector>

namespace covey {

// `in`, `lost`: by replica. A lost replica is dead, and all it has sent has been read. Knowledge of
// lost replicas alone reaches no other.
bool IsQuorum(const std::vector<bool>& in, const std::vector<bool>& lost);

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_QUORUM_H_
