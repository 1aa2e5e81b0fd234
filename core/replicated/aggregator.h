// The leader's aggregator of the next version: all members' slots in memory of its own, with the
// arrivals, decisions and records of core/partial, which so mean the same across hosts as on one.
// Slots have no content here: that stays with its member, and sums are made elsewhere
// (formation.h).
//
// For each member it does what the member's own process does on one host: it publishes what has
// come to the member's slot, keeps its words, and runs its clock of max_wait.
//
//   slot                   event                                 slot after
//   open, taken            OnContribution                        published
//   published              OnContribution                        published: both as one
//   published, able        Fire                                  taken
//   published, not able    Fire                                  published: not in the version
//   published, lost        Fire                                  open: its content is lost
//   taken                  Abandon                               published
//   published since taken  Abandon                               published: both as one
//   published              DropLate                              open: no version will have it
//
// Models are replaced, not added to, and taken ones are on offer too (core/partial/collect.h):
//
//   any                    OnModel                               published, or taken if a version
//                                                                has had it: a new leader is told
//   taken                  Abandon                               as it was before
//   published since taken  Abandon                               published: the later one
#ifndef COVEY_CORE_REPLICATED_AGGREGATOR_H_
#define COVEY_CORE_REPLICATED_AGGREGATOR_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/partial/arrivals.h"
#include "core/partial/tiles.h"
#include "core/replicated/private_blocks.h"
#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"
#include "core/transport/private_atomics.h"

namespace covey {

// The leader's knowledge of the members, by member.
struct Hearing {
  std::vector<bool> lost;
  std::vector<bool> heard;  // lately, and not lost
  std::vector<bool> able;   // to take part in the next version, as far as is known
};

class Aggregator {
 public:
  Aggregator(const AdmissionRule& admission, const RoundMemory::Shape& shape,
             const Kernels* kernels);

  // Goes on after the last committed version of `log`. Before, only OnAppendResponse may be called.
  void Open(const ReplicatedLog& log);
  bool is_open() const { return is_open_; }

  void OnAppendResponse(int32_t member, const ReplicaMessage& state);
  // The member's slot as one contribution. REQUIRES: none of it is in a version.
  Contribution OnContribution(int32_t member, const ReplicaMessage& message);
  // Models: the member's latest, in place of what it had, whether or not a version has had it.
  Contribution OnModel(int32_t member, const ReplicaMessage& message);

  // The next version, with its record alone, if it may fire now; else *until is when to ask again,
  // if nothing comes. The clocks of members that are not heard stand still.
  std::optional<ReplicatedEntry> Fire(const Hearing& hearing, Time now, Time* until);
  // Of all members' versions from now on.
  void set_grace(Time grace);
  // The version that was fired is committed.
  void OnCommitted();
  // The same is being made: when the first rank that is heard and trains has waited for it for
  // max_wait.
  Time WaitedAt(const std::vector<bool>& heard, Time now);
  // It is given up, and may fire again. `is_over`: as one that max_wait is over for.
  void Abandon(bool is_over);

  // The last version is settled, for members that have finished so often (settlement.h). REQUIRES:
  // no version is under way.
  void Settle(uint64_t times);
  // See Arrivals::HasEnded.
  bool HasEnded(const std::vector<bool>& lost, bool* any) const {
    return members_.front().arrivals.HasEnded(lost, any);
  }
  // Gradients. The last step of what the member has published, which is dropped; 0: nothing.
  uint64_t DropLate(int32_t member);
  // Models: the last version was final.
  bool is_final() const { return final_; }

  // No version is under way, and no living member has published a contribution; settled: or that
  // stays.
  bool IsQuiet(const std::vector<bool>& lost);
  // The try of the member's finish() that max_wait is over for; 0: it is not.
  uint64_t OverOf(int32_t member) const { return members_[static_cast<size_t>(member)].over; }
  // The member word; of one that has left, such that it has finished for good; of one whose last
  // model is missing, such that it has not finished.
  uint64_t StatusOf(int32_t member);

 private:
  struct Member {
    Arrivals arrivals;
    Time max_wait = kNever;
    uint64_t tries = 0, over = 0;
    bool is_held_up = false;  // it has finished, and cannot give its last model now
  };

  SlotWord SlotOf(int32_t member);
  void Rest(uint64_t executed);
  bool IsHeldUp(int32_t member) const { return members_[static_cast<size_t>(member)].is_held_up; }
  void HoldUp(int32_t member, bool is_held_up);
  void SetSlot(int32_t member, SlotState state, uint32_t buffer, uint64_t step);
  void Restore(int32_t member, uint32_t taken);
  bool IsOffered(const SlotWord& slot) const;
  uint64_t LastCounted(int32_t member, const SlotWord& slot);
  // Whether a version has had the model.
  SlotState StateOf(int32_t member, uint64_t step) const;
  std::optional<ReplicatedEntry> FireOffered(const StateWord& state, const Hearing& hearing,
                                             const std::vector<uint64_t>& steps, Time now,
                                             Time* until);
  Arrivals::Answer AskAll(const StateWord& state, const Hearing& hearing,
                          const std::vector<uint64_t>& steps, Time now);
  ReplicatedEntry Make(const StateWord& state, const std::vector<bool>& lost, Time now);

  RoundMemory memory_;
  PrivateBlocks blocks_;
  PrivateAtomics words_;
  Tiles tiles_;
  std::vector<Member> members_;
  Arrivals::Count count_;
  std::vector<Inclusion> inclusions_;
  std::vector<uint64_t> consumed_;        // after the last committed version,
  std::vector<uint64_t> consumed_after_;  // and after the one under way
  uint64_t over_version_ = 0;             // the last that max_wait was over for while it was made
  bool is_open_ = false;
  bool final_ = false;    // models: the last committed version
  uint64_t settled_ = 0;  // the last committed version, see Settle
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_AGGREGATOR_H_
