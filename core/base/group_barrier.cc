#include "core/base/group_barrier.h"

#include <algorithm>

namespace covey {

bool GroupBarrier::Enter(Phase phase, Time now) {
  if (phase_ == phase) return false;
  phase_ = phase;
  since_ = now;
  return true;
}

Time GroupBarrier::Left(Time max_wait, Time now) const {
  return std::max<Time>(0, max_wait - (now - since_));
}

std::string GroupBarrier::Names(const std::vector<int32_t>& missing, std::string_view none) const {
  std::string names;
  for (const int32_t index : missing)
    names += (names.empty() ? "rank " : ", ") +
             std::to_string(ToInt(group_->members[static_cast<size_t>(index)]));
  return names.empty() ? std::string(none) : names;
}

Status GroupBarrier::TimedOut(const std::vector<int32_t>& missing, Time max_wait,
                              std::string_view then) const {
  const auto first = static_cast<size_t>(missing.empty() ? 0 : missing.front());
  return Status::Timeout(
      "finish() of '" + bundle_ + "' has waited " + std::to_string(max_wait / kMillisecond) +
          " ms (max_wait) for " + Names(missing, "the last version") +
          (phase_ == Phase::kApplies ? " to apply what all had: " : ": ") + std::string(then),
      group_->members[first]);
}

}  // namespace covey
