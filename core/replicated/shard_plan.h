// The way of a version's sum, in shards: from the contributors by hosts to an owner, and back.
//
//   stage         from, to                                               carries
//   kContributed  contributor -> its host's delegate for the shard       its contribution
//   kHosted       delegate -> owner                                      the sum of its host
//   kSummed       owner -> the delegates of other hosts, its own host    the sum
//   kSummed       delegate -> the other members of its host              the sum
//
// The owner is its own host's delegate. Owners take turns by hosts, delegates within each host. So
// of a version of n bytes a member sends at most about 2 n, and of H hosts each sends about
// 2 (H - 1) / H n: as much as a two-level allreduce, whatever the number of members.
//
// Pieces may go by a hub, which hands them on (formation.h). That changes no plan.
//
// Contributions are summed by host, in rank order there, then in the order of hosts. A plan is a
// function of its arguments alone, so equal ones give the same bytes. Pure.
#ifndef COVEY_CORE_REPLICATED_SHARD_PLAN_H_
#define COVEY_CORE_REPLICATED_SHARD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace covey {

// Shards are about as long as a message that keeps a link busy, unless the sum is short; and go,
// with their head, in one frame (Fragmenter::kMostFrameBytes), which is not copied.
struct ShardLimits {
  size_t least_bytes = size_t{16} << 10, most_bytes = size_t{120} << 10;
};

enum class ShardStage : uint8_t { kNone = 0, kContributed, kHosted, kSummed };

class ShardPlan {
 public:
  struct Host {
    std::vector<int32_t> members;       // that have a role, ascending
    std::vector<int32_t> contributors;  // of those
  };
  struct Shard {
    size_t offset_bytes = 0, length_bytes = 0;
  };

  // `roles`: by member, 1 + a number of its host; 0: it has none. `contributes`: by member; those
  // without a role do not. A sum without contributors has no shards: it is zero.
  ShardPlan(const std::vector<uint64_t>& roles, const std::vector<bool>& contributes,
            size_t length_bytes, const ShardLimits& limits);

  // The number of shards.
  size_t size() const { return shards_.size(); }
  const Shard& shard(size_t number) const { return shards_[number]; }
  // In the order of sums: by their lowest members.
  const std::vector<Host>& hosts() const { return hosts_; }
  // The index of a member's host; -1: it has no role.
  int32_t HostOf(int32_t member) const { return host_of_[static_cast<size_t>(member)]; }
  int32_t DelegateOf(size_t shard, int32_t host) const;
  int32_t OwnerOf(size_t shard) const { return DelegateOf(shard, OwnerHostOf(shard)); }
  // Whether others wait for something that the member sends.
  bool HasPart(int32_t member) const;

 private:
  int32_t OwnerHostOf(size_t shard) const { return static_cast<int32_t>(shard % hosts_.size()); }

  std::vector<Host> hosts_;
  std::vector<int32_t> host_of_;
  std::vector<Shard> shards_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_SHARD_PLAN_H_
