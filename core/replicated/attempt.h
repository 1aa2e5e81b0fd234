// The attempt at a version that a leader has under way: whose part in it is awaited, and when it
// last moved.
//
// Gradients have one sum, and the leader gets pieces of it. Models have one for each group. The
// leader makes that of its own group; of the others it hears what their members answer: how many
// pieces have come to them, and that they have accepted the attempt.
//
// Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_ATTEMPT_H_
#define COVEY_CORE_REPLICATED_ATTEMPT_H_

#include <algorithm>
#include <vector>

#include "core/partial/memory.h"
#include "core/replicated/replicated_log.h"
#include "core/replicated/shard_plan.h"

namespace covey {

class Attempt {
 public:
  // `entry` has its record, roles and hub. `leader` proposes it.
  Attempt(const RoundMemory& geometry, const ReplicatedEntry& entry, int32_t leader,
          const ShardLimits& limits, Time now);

  bool has_hub() const { return has_hub_; }
  bool IsByHub(int32_t member) const { return by_hub_[static_cast<size_t>(member)]; }
  // The time when the attempt was proposed, or a piece of it came.
  Time moved_at() const { return moved_at_; }
  void OnPiece(Time now) { moved_at_ = now; }
  // Models: so many pieces have come to a member; a member has the mean of its group.
  void OnPieces(int32_t member, uint64_t pieces, Time now);
  void OnMade(int32_t member, Time now);

  // Whether others wait for something that the member is to send.
  bool IsAwaited(int32_t member) const {
    return !is_whole_[SumOf(member)] && plans_[SumOf(member)].HasPart(member);
  }
  // Models: each group with models in it has a member that has their mean.
  bool IsMade() const {
    return std::all_of(is_whole_.begin(), is_whole_.end(), [](bool is) { return is; });
  }
  bool IsBesideLeader(int32_t member) const { return SumOf(member) == SumOf(leader_); }

 private:
  size_t SumOf(int32_t member) const {
    return static_cast<size_t>(sums_[static_cast<size_t>(member)]);
  }

  int32_t leader_;
  std::vector<int32_t> sums_;     // by member
  std::vector<ShardPlan> plans_;  // by sum,
  std::vector<bool> is_whole_;    // and whether some member has it
  std::vector<uint64_t> pieces_;  // by member
  bool has_hub_;
  std::vector<bool> by_hub_;  // by member
  Time moved_at_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_ATTEMPT_H_
