// The leader's aggregator of the next version: all members' slots in memory of its own, with the
// arrivals, decisions and sums of core/partial, which so mean the same across hosts as on one.
//
// For each member it does what the member's own process does on one host: it publishes what has
// come to the member's slot, keeps its words, and runs its clock of max_wait.
#ifndef COVEY_CORE_REPLICATED_AGGREGATOR_H_
#define COVEY_CORE_REPLICATED_AGGREGATOR_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/partial/arrivals.h"
#include "core/partial/slot.h"
#include "core/partial/tiles.h"
#include "core/replicated/private_atomics.h"
#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"

namespace covey {

class Aggregator {
 public:
  struct Options {
    AdmissionRule admission;
    bool average = false;
    const Kernels* kernels = nullptr;
  };

  Aggregator(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout);

  // Goes on after the last committed version of `log`. Before, only OnAppendResponse may be called.
  void Open(const ReplicatedLog& log);
  bool is_open() const { return is_open_; }

  void OnAppendResponse(int32_t member, const ReplicaMessage& state);
  // The member's slot as one contribution. REQUIRES: none of it is in a version.
  Contribution OnContribution(int32_t member, const ReplicaMessage& message);

  // The next version if it may fire now; else *until is when to ask again, if nothing comes. The
  // clocks of members that are not `heard` stand still.
  std::optional<ReplicatedEntry> Fire(const std::vector<bool>& lost, const std::vector<bool>& heard,
                                      Time now, Time* until);
  // Of all members' versions from now on.
  void set_grace(Time grace);
  // The version that was fired is committed.
  void OnCommitted();

  // Nothing is under way, and nothing published.
  bool IsQuiet();
  // The try of the member's finish() that max_wait is over for; 0: it is not.
  uint64_t OverOf(int32_t member) const { return members_[static_cast<size_t>(member)].over; }
  // The member word; of one that has left, such that it has finished for good.
  uint64_t StatusOf(int32_t member);

 private:
  struct Member {
    Slot slot;
    Arrivals arrivals;
    Time max_wait = kNever;
    uint64_t tries = 0, over = 0;
  };

  Arrivals::Answer AskAll(const StateWord& state, const std::vector<bool>& lost,
                          const std::vector<bool>& heard, Time now);
  ReplicatedEntry Make(const StateWord& state, const std::vector<bool>& lost, Time now);

  RoundMemory memory_;
  PrivateBlocks blocks_;
  PrivateAtomics words_;
  Tiles tiles_;
  std::vector<Member> members_;
  std::vector<Inclusion> inclusions_;
  std::vector<uint64_t> consumed_;
  bool is_open_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_AGGREGATOR_H_
