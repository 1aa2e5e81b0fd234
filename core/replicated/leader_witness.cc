// When a leader asks the witness for its acceptance.
#include <vector>

#include "core/replicated/leader_state.h"
#include "core/replicated/quorum.h"

namespace covey {

// More than half of all are fast: while they are there the witness hears nothing of a version.
void LeaderState::AskWitness(const std::vector<bool>& acceptors, const std::vector<bool>& lost,
                             Time now) {
  const Progress& mine = log_->progress();
  if (!IsQuorum(acceptors, lost, options_.witness->HalfIfWon())) return;
  if (mine != halved_.accepted || halved_.since == 0) {
    halved_.accepted = mine;
    halved_.since = now;
    std::vector<bool> near;
    for (int32_t i = 0; i < size_; ++i) {
      const Progress& other = followers_[static_cast<size_t>(i)].progress;
      const uint64_t last = other.executed + (other.has_entry ? 1 : 0);
      near.push_back(i == options_.self || last >= mine.executed);
    }
    halved_.asks &= !IsQuorum(near, lost, Half::kMissing);
  }
  std::vector<bool> may_accept = acceptors;
  for (int32_t i = 0; i < size_; ++i) {
    const auto index = static_cast<size_t>(i);
    if (!lost[index] && SilenceOf(i, lost, now) <= options_.election_timeout)
      may_accept[index] = true;
  }
  const bool is_late = now - halved_.since >= options_.election_timeout;
  // replicated-W24: the witness is asked where the others are silent, or have long not accepted.
  halved_.asks |= is_late || !IsQuorum(may_accept, lost, Half::kMissing);
  if (halved_.asks) options_.witness->Ask(Witness::Question::kAccept, term_, mine);
}

}  // namespace covey
