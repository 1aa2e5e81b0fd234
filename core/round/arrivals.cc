#include "core/round/arrivals.h"

#include <algorithm>

namespace covey {

int32_t AdmissionRule::Wanted(int32_t active) const {
  if (count > 0) return std::min(count, active);
  return std::max(1, (active * permille + 999) / 1000);
}

Time Arrivals::FireAt(uint64_t version, const std::vector<bool>& lost, Time now) {
  int32_t active = 0;
  int32_t arrived = 0;
  bool anything = false;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const Standing standing{words_->Load(memory_->MemberAt(i))};
    const SlotWord slot = SlotWord::Of(words_->Load(memory_->SlotAt(i)));
    const bool sealed = slot.state == SlotState::kSealed;
    anything |= sealed;
    if (standing.finished() || lost[static_cast<size_t>(i)]) continue;
    ++active;
    arrived += sealed && slot.step >= version ? 1 : 0;
  }
  if (active == 0) return anything ? now : kNever;
  if (arrived == active) return now;
  if (arrived < rule_.Wanted(active)) return kNever;
  if (met_version_ != version) {
    met_version_ = version;
    met_at_ = now;
  }
  return met_at_ + rule_.grace;
}

}  // namespace covey
