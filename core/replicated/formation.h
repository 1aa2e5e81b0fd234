// One member's part in making the sum of one proposed version, by the plan of shard_plan.h.
//
// For each shard, by the member's place in the plan:
//
//   event                                         action
//   Contribute                                    each shard of it to the delegate of its host
//   delegate: all contributors of its host came   their sum to the owner
//   owner: all hosts with contributors came       the sum, divided, to its host and each delegate
//   any: the sum came                             it is in the result
//   delegate: the sum came                        the same to the other members of its host
//   any: a shard that it has, or does not expect  dropped
//
// A piece of a member that is by the hub, or for one, goes to the hub, which hands it on as it is:
// the hub needs no part in the sum, and holds no copy (replicated-W17).
//
// A piece carries the origin of its version: other versions and attempts have other formations.
// Equal origins have equal bytes, so a shard of the sum may come from any member that has it.
//
// Sums are made where they stay, in the entry: messages and the log hold it, and no copy of it. A
// shard that is there does not change any more. Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_FORMATION_H_
#define COVEY_CORE_REPLICATED_FORMATION_H_

#include <vector>

#include "core/base/counted_bytes.h"
#include "core/base/kernels.h"
#include "core/partial/log.h"
#include "core/partial/memory.h"
#include "core/replicated/outbox.h"
#include "core/replicated/replicated_log.h"
#include "core/replicated/shard_plan.h"

namespace covey {

// Memory of entries. That of entries that are gone is taken again: the kernel would have to clear
// new memory, page by page.
class EntryBuffers {
 public:
  CountedBytes Take(size_t size);

 private:
  std::vector<CountedBytes> all_;
};

class Formation {
 public:
  // All borrowed, outlive the formation.
  struct Site {
    int32_t self = 0;
    const RoundMemory* geometry = nullptr;  // of results: record, sum; not mapped
    const Kernels* kernels = nullptr;
    bool average = false;  // sums are divided by the record's divisor
    ShardLimits limits;
    Outbox* outbox = nullptr;
  };

  // `entry` has its record alone, of an agreed length, and is of this member's size. `sum`: one of
  // the version's sums: the member's own, or, of models, that of another group, which it fetches.
  Formation(const Site& site, ReplicatedEntry entry, int32_t sum, EntryBuffers* buffers);

  // The plan of one sum of a version: the roles and contributions of its members alone.
  static ShardPlan PlanOf(const RoundMemory& geometry, const ReplicatedEntry& entry,
                          const RoundRecord& record, int32_t sum, const ShardLimits& limits);

  uint64_t version() const { return entry_.version; }
  const Origin& made() const { return entry_.made; }
  const ShardPlan& plan() const { return plan_; }
  // The member's own part of the version; count 0: none.
  const Contribution& own() const { return own_; }
  // `content`: that part, as long as a contribution. Once.
  void Contribute(const Slice& content);
  // REQUIRES: piece.made == made().
  void OnPiece(int32_t from, ReplicaMessage piece);

  bool Has(size_t shard) const { return has_[shard]; }
  // Whether the sum is that of the member's group.
  bool IsOf(int32_t member) const { return sums_[static_cast<size_t>(member)] == sum_; }
  bool is_whole() const { return missing_ == 0; }
  // Models: it is whole without the mean from now on.
  void GiveUp();
  // REQUIRES: is_whole(). The version with its sum; the formation is void. With models the body is
  // the record alone where there is no mean.
  ReplicatedEntry Take();

 private:
  // The inputs of one sum, in order.
  struct Inputs {
    std::vector<Slice> pieces;
    size_t missing = 0;
  };

  Inputs* InputsOf(int32_t from, const ReplicaMessage& piece, size_t* index);
  std::byte* PlaceOf(size_t shard) const;
  Slice Placed(size_t shard) const;
  void Spread(size_t shard);
  void DropMean();
  void OnSummed(size_t shard);
  void Sum(size_t shard, const std::vector<Slice>& inputs, int32_t divisor, std::byte* to) const;
  void Send(int32_t to, ShardStage stage, size_t shard, Slice data);
  bool GoesByHub(int32_t to) const;

  const Site site_;
  ReplicatedEntry entry_;
  RoundRecord record_;
  int32_t sum_;
  std::vector<int32_t> sums_;  // by member
  CountedBytes memory_;        // its body
  Contribution own_;
  int32_t divisor_ = 1;
  ShardPlan plan_;
  int32_t host_;                  // this member's, in the plan; -1: none
  std::vector<int32_t> sources_;  // the hosts with contributors
  std::vector<Inputs> of_host_;   // by shard, at its delegate,
  std::vector<Inputs> of_all_;    // and at its owner
  std::vector<bool> has_;         // by shard: its sum
  size_t missing_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_FORMATION_H_
