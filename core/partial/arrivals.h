// Whether a version may fire: how many members have come, how many are wanted (partial-W4), and how
// long this rank has waited for them (partial-W8).
//
// A member has arrived at v when its slot is published at a step of v or later; a contribution for
// an earlier step travels, but does not count. Members that have finished, left or died, and those
// that are overdue, count neither as arrived nor as wanted. When only overdue members are left, the
// first of them that arrives is enough. When all have finished, contributions that are still
// published make one more version. So do, once, those that are published when max_wait is over for
// a member that has finished.
//
// The versions of a warm-up wait for all members that are waited for, also where later ones need
// fewer. So do versions with which the rounds may end, because another method follows: when one of
// them leaves no member overdue, all are at it.
//
// Models stay arrived until the next comes. Every so-many-th version waits for all members that are
// waited for. When all have finished a final version is made of all models, of any step.
//
// Members that end finish() without others settle the last version. Until one of them trains on no
// other is made: a member that comes later is to end with that one.
//
// No member runs ahead alone: a version fires only when the log leads on from the last applied
// versions of two members, of those that are waited for and those that have finished and are still
// there (partial-W10). Else all would need a snapshot of the one rank ahead, which may be stopped.
//
// Each waiting member counts arrivals from the slot words, and the exchange of the state word
// decides which of them fires: no member is *the* k-th, on which all depend if it stops.
//
// A member whose last step is more than `staleness` behind holds up the version (partial-W9),
// because its next contribution would be older than that. Its next step lets the version fire. A
// member that is slow for good would hold up every version so, by less than max_wait each. The time
// waited for it adds up until it has gained on the limit. With models this holds at versions of
// all, from the arrival of half of the members, until the member comes with the first half again.
// The sum decays by a twelfth of the elapsed time: so the others keep nine tenths of their pace,
// and a slightly slower member is waited for.
//
// max_wait runs on each waiter's own clock, and only while it waits. Time in which
// the waiter was stopped itself counts in part: else a job that was stopped as a whole and goes on
// would find every slightly later member overdue.
#ifndef COVEY_CORE_PARTIAL_ARRIVALS_H_
#define COVEY_CORE_PARTIAL_ARRIVALS_H_

#include <vector>

#include "core/partial/drawn.h"
#include "core/partial/memory.h"

namespace covey {

// The members that a version waits for. All ranks have the same.
struct AdmissionRule {
  int32_t count = 0;        // members wanted; 0: a part of those that are left
  int32_t permille = 1000;  // that part; rounded up, at least one
  int32_t drawn = 0;        // not 0: instead, one of so many that are drawn (drawn.h)
  uint64_t seed = 0;        // of the draw
  Time grace = 0;           // how long a version waits for more once these have come, by the clock
                            // of the waiting member
  uint64_t staleness = 0;   // partial-W9: v waits for all below step v - staleness; 0: none
  uint64_t warmup = 0;      // so many versions, the first, wait for all, and no grace;
  uint64_t ending = 0;      // so do those from this one on, with each of which the rounds may end;
                            // 0: none

  int32_t Wanted(int32_t active) const;
  bool IsMet(const std::vector<Counted>& counted, uint64_t version) const;
};

// The rank that waits.
struct WaitingRank {
  uint64_t step = 0;       // its last
  bool finished = false;   // it waits until all have finished
  uint64_t times = 0;      // how often it has finished
  Time max_wait = kNever;  // how long for one version
};

class Arrivals {
 public:
  struct Answer {
    Time at = kNever;  // when it may fire: at or before `now`, or later; kNever: others must come
    bool expired = false;  // then without members that are wanted: max_wait is over
    bool final = false;    // then as a version of all, for those that have finished (models)
  };

  Arrivals(const AdmissionRule& rule, const RoundMemory* memory, SharedAtomics* words)
      : rule_(rule), memory_(memory), words_(words) {}

  void set_grace(Time grace) { rule_.grace = grace; }
  // How long a version that the rounds may end with waits for members that are overdue and work for
  // it: about a step. Else a member as fast as the others, only later in its step, would never come
  // in time.
  void set_patience(Time patience) { patience_ = patience; }

  // The count of members, which is the same for all waiting ranks until a word changes.
  enum class Lag : uint8_t { kNone, kStale, kEarly };  // behind, or before the limit on staleness
  struct Count {
    int32_t active = 0, arrived = 0;
    bool is_met = false;                // these are enough
    bool stale = false;                 // one of them is further behind than it may be
    int32_t covered = 0;                // active or finished, and its last version is in the log
    bool others = false;                // some member is overdue
    bool others_arrived = false;        // some overdue member has arrived
    bool coming = false;                // an overdue member has not, but has applied version - 1
    bool published = false;             // some slot is published
    bool published_finished = false;    // the slot of a finished member is published
    bool final = false;                 // the last version was final
    uint64_t least_times = UINT64_MAX;  // the fewest finishes of a member that lives
    std::vector<Counted> counted;       // the active ones
    std::vector<Lag> lags;              // by member; empty: there is no limit
  };
  void CountMembers(uint64_t version, const std::vector<bool>& lost, Count* count) const;

  // When `version`, the next one, may fire. `count`: of now; of all members alike.
  Answer FireAt(uint64_t version, const std::vector<bool>& lost, const WaitingRank& waiter,
                Time now) {
    CountMembers(version, lost, &count_);
    return FireAt(version, count_, lost, waiter, now);
  }
  Answer FireAt(uint64_t version, const Count& count, const std::vector<bool>& lost,
                const WaitingRank& waiter, Time now);

  // While `version` is being made: when this rank has waited for it for max_wait, if it trains; its
  // clock goes on.
  Time WaitedAt(uint64_t version, const WaitingRank& waiter, Time now);

  // `version` has fired, by any member: the time that this rank has waited since its last look
  // still counts against the members it was waiting for.
  void OnFired(uint64_t version, Time max_wait, Time now);
  // A finished member waits once, not again for the members missing when `version` expired.
  void OnExpired(uint64_t version) { expired_version_ = version; }
  // It begins to wait anew.
  void Restart() {
    timed_version_ = expired_version_ = swept_version_ = 0;
    over_ = false;
  }
  // As of the last answer: max_wait is over for a waiter that has finished, and no finished member
  // holds a contribution for a version; or it is over for one that trains on a settled version.
  bool over() const { return over_; }
  // Whether the last version is settled, and no member that was there then trains on. *any: one of
  // them is still there.
  bool HasEnded(const std::vector<bool>& lost, bool* any) const;

 private:
  // A member that may be too far behind, by this rank's clock.
  struct Laggard {
    bool is_stale = false;   // it holds up the version
    bool was_stale = false;  // at the look before
    Time waited = 0;         // for it, since it was last better than it has to be

    bool operator==(const Laggard&) const = default;
  };

  bool MayEndWith(uint64_t version) const { return rule_.ending > 0 && version >= rule_.ending; }
  Time MetAt(uint64_t version, Time now);
  void NoteLags(const Count& count);
  void FindLaggards(uint64_t version, const Count& count, Time now);
  AdmissionRule RuleOf(uint64_t version) const;
  bool IsLeft(const Count& count, uint64_t version) const;
  bool IsCovered(const Count& count) const;
  Answer Rest(uint64_t version, const WaitingRank& waiter, bool any, Time now);
  Time OverAt(uint64_t version, const WaitingRank& waiter, Time now);
  Time Wait(uint64_t version, const WaitingRank& waiter, Time now);
  Time SinceLook(Time max_wait, Time now);

  AdmissionRule rule_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  Count count_;
  uint64_t met_version_ = 0;  // the last version this rank saw enough members at
  Time patience_ = 0;
  Time met_at_ = 0;
  uint64_t timed_version_ = 0;     // the last version this rank waited for,
  Time waited_ = 0;                // how long,
  Time seen_at_ = 0;               // until when
  std::vector<Laggard> laggards_;  // by member; empty: there is none
  uint64_t half_version_ = 0;      // models: the last version of all that half were seen at,
  Time forgiven_at_ = 0;           // and when
  uint64_t expired_version_ = 0;
  uint64_t swept_version_ = 0;  // the one that this rank, in finish(), makes of all contributions
  bool over_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_ARRIVALS_H_
