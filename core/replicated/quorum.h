// How many replicas are a quorum: more than half of all, or all that live. Of an even number one
// half vote decides between two halves: the first replica has it, or in a job with a witness
// (witness.h) the witness. Two sets that do not know of each other are never both a quorum. Pure.
#ifndef COVEY_CORE_REPLICATED_QUORUM_H_
#define COVEY_CORE_REPLICATED_QUORUM_H_

#include <cstdint>
#include <vector>

namespace covey {

// The half vote of an even number, beside a set of replicas: the first replica has it, as in a job
// without a witness; the witness has it, and is with them, or is not. All replicas of a job say
// alike whether there is a witness.
enum class Half : uint8_t { kOfTheFirst, kWithThem, kMissing };

// `in`, `lost`: by replica. A lost replica is dead, and all it has sent has been read. Knowledge of
// lost replicas alone reaches no other.
bool IsQuorum(const std::vector<bool>& in, const std::vector<bool>& lost,
              Half half = Half::kOfTheFirst);

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_QUORUM_H_
