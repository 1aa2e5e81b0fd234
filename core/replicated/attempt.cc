#include "core/replicated/attempt.h"

#include "core/partial/log.h"
#include "core/partial/merge.h"
#include "core/replicated/formation.h"

namespace covey {

Attempt::Attempt(const RoundMemory& geometry, const ReplicatedEntry& entry, int32_t leader,
                 const ShardLimits& limits, Time now)
    : leader_(leader), pieces_(entry.roles.size()), has_hub_(entry.hub >= 0), moved_at_(now) {
  for (const uint64_t role : entry.roles) by_hub_.push_back((role & kByHub) != 0);
  RoundRecord record;
  ReadRecord(geometry, entry.body.data(), &record);
  sums_ = geometry.SumsOf(entry.version, record.header.final);
  const int32_t sums = 1 + *std::max_element(sums_.begin(), sums_.end());
  for (int32_t sum = 0; sum < sums; ++sum) {
    plans_.push_back(Formation::PlanOf(geometry, entry, record, sum, limits));
    is_whole_.push_back(geometry.models().on() && CountOf(record, sums_, sum) == 0);
  }
}

void Attempt::OnPieces(int32_t member, uint64_t pieces, Time now) {
  uint64_t* known = &pieces_[static_cast<size_t>(member)];
  if (pieces <= *known) return;
  *known = pieces;
  moved_at_ = std::max(moved_at_, now);
}

void Attempt::OnMade(int32_t member, Time now) {
  if (is_whole_[SumOf(member)]) return;
  // replicated-W19: one member that has accepted the attempt has the mean of its group.
  is_whole_[SumOf(member)] = true;
  moved_at_ = std::max(moved_at_, now);
}

}  // namespace covey
