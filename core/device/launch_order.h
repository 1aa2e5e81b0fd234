// In which order a rank launches operations over communicators (agree-N12): an order that any two
// ranks see alike, of any number of groups, without a coordinator and without messages.
//
// A rank has a number, which rises. Once it knows that all members have begun an exchange it
// proposes the next: (number, rank). The largest that a member has proposed is the exchange's
// *turn*, equal on all of them and given once. A rank launches an exchange when its turn is known
// and nothing else here can have a smaller one: no other exchange has one, and of those whose turn
// is not known yet the own proposal, below which it cannot fall, is larger.
//
// No member waits for a user: all members have begun every proposed operation, so that they propose
// too. A rank that submits and waits in another order than the others delays no rank.
// (Skeen's total order of multicasts to overlapping groups, as in Birman and Joseph, "Reliable
// Communication in the Presence of Failures", 1987.)
#ifndef COVEY_CORE_DEVICE_LAUNCH_ORDER_H_
#define COVEY_CORE_DEVICE_LAUNCH_ORDER_H_

#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace covey {

class LaunchOrder {
 public:
  explicit LaunchOrder(Rank self) : self_(self) {}

  // This rank's proposal for `exchange`, of which all members' begins are known. Never 0.
  uint64_t Propose(const void* exchange);
  // The largest proposal. REQUIRES: Propose(exchange), turn >= the own proposal.
  void Settle(const void* exchange, uint64_t turn);
  // Whether it is settled and comes before all others here.
  bool IsNext(const void* exchange) const;
  // It is launched, or never will be. A missing entry stays missing.
  void Remove(const void* exchange);

 private:
  struct Waiting {
    const void* exchange;
    uint64_t turn;  // until it is settled: the own proposal
    bool settled;
  };
  // Ranks are below it (kMaxRanks of core/base/knobs.cc).
  static constexpr int kRankBits = 16;

  Rank self_;
  uint64_t number_ = 0;  // the largest of a turn seen
  std::vector<Waiting> waiting_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_LAUNCH_ORDER_H_
