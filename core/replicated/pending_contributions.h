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
//   any          dropped up to its last       nothing: the others have ended without it
//   any          Withdraw                     nothing: its rank takes it back
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
#include "core/replicated/contributions.h"

namespace covey {

class PendingContributions final : public Contributions {
 public:
  // Both outlive this.
  PendingContributions(const RoundLayout* layout, const Kernels* kernels);

  std::byte* open() const override { return open_.data(); }
  void Publish(uint64_t step, std::span<const double> hypers) override;
  void Skip(uint64_t step) override;
  const Pending* Send() override;
  void OnAck(const Contribution& content) override;
  Slice Propose(const Contribution& part) override;
  void OnConsumed(uint64_t step) override;
  void OnExecuted(uint64_t version) override;
  void OnNewLeader() override;
  uint64_t Drop(uint64_t step) override;
  const std::byte* Withdraw() override;

  bool empty() const override;
  bool AreAllSent() const override;
  std::vector<Contribution> contents() const override;

 private:
  CountedBytes NewBuffer();
  void AddSum(std::byte* to, const std::byte* sum) const;
  void Add(Pending* to, const std::byte* sum, const Contribution& content);

  const RoundLayout* layout_;
  const Kernels* kernels_;
  std::deque<Pending> pending_;      // by step
  std::vector<CountedBytes> spare_;  // some of them held by messages still
  CountedBytes open_, withdrawn_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_PENDING_CONTRIBUTIONS_H_
