// A rank's own contributions until they are in a version that is committed, or known to be.
//
// A slot (core/partial/slot.h) is emptied by its reader. A contribution told to a leader stays here
// until a committed version says that it counts, and its content goes to those that make a proposed
// version. Contributions are told in order, one at a time: the next once the leader has
// acknowledged the last.
//
//   contribution event                        becomes
//   new          Publish: another step        the same, with that step
//   new          sent                         sent: nothing is added to it any more
//   sent         acked as (first..last)       one with the others within first..last, unless they
//                                             were proposed
//   any          Propose of (first..last)     proposed: it stays apart
//   any          consumed up to its last      nothing: it counts
//   any          another leader               the same, to be sent again, but not `new` again
//
// A step with nothing to give is an empty contribution (replicated-W11): a contribution without a
// sum, which says how far its rank has come, or the `arrived` of the one before it. It counts for
// nothing: once versions have come as far it is gone.
//
// Invariant: a version ends between two contributions, never within one: the leader that holds two
// as one takes them as one, and what an earlier leader had proposed is committed, or followed by a
// no-op entry, before a leader holds anything (replicated-W7). An abandoned attempt may still be
// committed by a later leader, so what was proposed does not grow either (replicated-W14).
#ifndef COVEY_CORE_REPLICATED_PENDING_CONTRIBUTIONS_H_
#define COVEY_CORE_REPLICATED_PENDING_CONTRIBUTIONS_H_

#include <deque>
#include <span>
#include <vector>

#include "core/base/counted_bytes.h"
#include "core/base/kernels.h"
#include "core/partial/layout.h"
#include "core/partial/memory.h"

namespace covey {

class PendingContributions {
 public:
  struct Pending {
    Contribution content;
    std::vector<double> hypers;
    CountedBytes sum;    // none: it is an empty contribution
    bool is_new = true;  // it was never sent
    bool is_proposed = false;
    bool is_sent = false, is_acked = false;  // by, to the present leader
  };

  // Both outlive this.
  PendingContributions(const RoundLayout* layout, const Kernels* kernels);

  std::byte* open() const { return open_.data(); }
  // REQUIRES: step grows.
  void Publish(uint64_t step, std::span<const double> hypers);
  // The same with nothing to give.
  void Skip(uint64_t step);
  // The contribution to send now, which is sent from now on; null: none.
  const Pending* Send();
  void OnAck(const Contribution& content);
  // The content of the steps of `part`, which are proposed: it does not change any more. Empty: it
  // has them not as such.
  Slice Propose(const Contribution& part);
  void OnConsumed(uint64_t step);
  // The last version that is committed.
  void OnExecuted(uint64_t version);
  // It has finished, and is not waited for: a version of empty contributions alone would serve no
  // rank.
  void OnFinished() { OnExecuted(~uint64_t{0}); }
  void OnNewLeader();

  // Nothing but empty contributions.
  bool empty() const;
  bool AreAllSent() const;
  std::vector<Contribution> contents() const;  // for checkers; without empty contributions

 private:
  CountedBytes NewBuffer();
  void AddSum(std::byte* to, const std::byte* sum) const;
  void Add(Pending* to, const std::byte* sum, const Contribution& content);

  const RoundLayout* layout_;
  const Kernels* kernels_;
  std::deque<Pending> pending_;      // by step
  std::vector<CountedBytes> spare_;  // some of them held by messages still
  CountedBytes open_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_PENDING_CONTRIBUTIONS_H_
