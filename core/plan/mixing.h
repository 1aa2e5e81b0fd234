// The effect of a topology on models that differ: how fast it brings them together, whether it
// moves their mean. Pure; any thread.
#ifndef COVEY_CORE_PLAN_MIXING_H_
#define COVEY_CORE_PLAN_MIXING_H_

#include <cstdint>

#include "core/plan/topology.h"

namespace covey {

struct MixingReport {
  // By how much the sum of a column differs from 1, at most: 0 for a doubly stochastic W, which
  // moves no mean. And of which rank.
  double column_error = 0;
  int32_t column = 0;
  // Whether what any rank knows reaches all, over the rounds of a period. If not: `unreached` does
  // not hear of `unheard`.
  bool is_connected = true;
  int32_t unheard = -1, unreached = -1;
  // The rate at which a round shrinks the distance of the models from their mean, at least, over a
  // period: the d-th root of the second largest singular value of the product of its d matrices. 0:
  // all are equal after a period; 1: they never come together. 1 - it is the spectral gap.
  double contraction = 0;

  double gap() const { return 1 - contraction; }
};

// The report is over one period, for a random topology over its first 64 rounds times cross_every,
// for a longer period over 2^20 / P rounds, or those up to the first between hosts. O(P) rounds of
// messages, not P x P: thousands of ranks are no matter, but for a user's matrix.
// REQUIRES: Check(topology).
MixingReport Examine(const Topology& topology);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_MIXING_H_
