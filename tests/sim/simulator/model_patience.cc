#include "tests/sim/simulator/model_patience.h"

#include <algorithm>

namespace covey {

// Ranks that are counted and have not come. Whether half of those counted have.
bool ModelPatience::Look(const RoundMemory& memory) {
  const auto size = static_cast<size_t>(memory.size());
  others_.resize(size);
  behind_.assign(size, false);
  int counted = 0, behind = 0;
  for (int32_t i = 0; i < memory.size() && version_ > 0; ++i) {
    if (MemberStatus{*memory.MemberAt(i)}.finished()) continue;
    if (Suspicion::Of(*memory.SuspicionAt(i)).overdue()) continue;
    ++counted;
    const bool is_behind = SlotWord::Of(*memory.SlotAt(i)).step < version_;
    behind_[static_cast<size_t>(i)] = is_behind;
    behind += is_behind ? 1 : 0;
  }
  return 2 * behind <= counted;
}

void ModelPatience::Before(const RoundMemory& memory, int32_t rank, uint64_t step, Time max_wait,
                           Time now) {
  const StateWord state = StateWord::Of(*memory.StateAt());
  const bool waits = !state.fired && !state.settled() && memory.models().IsSync(state.version()) &&
                     !MemberStatus{*memory.MemberAt(rank)}.finished() && step >= state.version() &&
                     max_wait != kNever;
  if (!waits || version_ != state.version())
    for (Other& other : others_) other.is_behind = false;
  since_ = now - looked_at_;
  for (Other& other : others_) other.waited -= since_ / 12 + 1;
  looked_at_ = now;
  version_ = waits ? state.version() : 0;
  had_half_ = Look(memory);
}

int32_t ModelPatience::After(const RoundMemory& memory, Time max_wait) {
  const bool has_half = Look(memory) && version_ > 0;
  // The pass may have seen half for the first time, and the ranks that have come by now.
  const bool is_first = has_half && half_version_ != version_;
  if (is_first && had_half_) half_version_ = version_;
  const StateWord state = StateWord::Of(*memory.StateAt());
  const bool goes_on = !state.fired && !state.settled() && state.version() == version_;
  int32_t patient_with = -1;
  for (size_t i = 0; i < others_.size(); ++i) {
    Other& other = others_[i];
    if (other.is_behind && goes_on) other.waited += std::min(since_, max_wait / 4);
    other.is_behind = goes_on && had_half_ && behind_[i];
    // Forgiven once a version, and never more than was waited: if it was in the pass before this
    // one, what has passed since is not yet.
    const Time least = -(since_ / 12 + 1);
    if (is_first) other.waited = behind_[i] ? std::max(other.waited, least) : least;
    if (other.is_behind && other.waited >= max_wait) patient_with = static_cast<int32_t>(i);
  }
  if (!goes_on) version_ = 0;
  return patient_with;
}

}  // namespace covey
