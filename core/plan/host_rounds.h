// Rounds of ranks that lie on several hosts: which of them average with each other in each. For
// topologies (topology.cc) and for groups (core/partial/groups.h).
//
// With cross_every = k every k-th round, those with (t + 1) mod k = 0, is between hosts, the others
// within them. Within hosts each host has the topology for itself; between hosts each place does:
// the first ranks of all hosts, their second ranks, as far as hosts have so many. The topology's
// own rounds count for each of the two kinds by itself. A round is made of subsets that touch no
// other, so W is doubly stochastic as the topology is.
//
// Where hosts have equally many ranks, rounds within hosts and between them commute, for one
// changes place and the other host: one_peer, with 2^a ranks on each of 2^b hosts, has the exact
// mean after a rounds within and b between hosts; and a static W contracts by the larger of
// w^((k-1)/k), of a host's ranks, and b^(1/k), of the hosts. Pure.
#ifndef COVEY_CORE_PLAN_HOST_ROUNDS_H_
#define COVEY_CORE_PLAN_HOST_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace covey {

struct HostRounds {
  std::span<const int32_t> hosts;  // by rank: numbers below that of the ranks
  int64_t cross_every = 1;

  // Some ranks share a host, some do not, and cross_every is more than 1.
  bool Divide() const;
};

// The ranks among whom a rank averages in a round.
struct RankSubset {
  std::vector<int32_t> ranks;  // ascending
  int32_t index = 0;           // where among them it is
  uint64_t round = 0;          // of a topology of these
  uint64_t number = 0;         // of the subset: others of its kind, and of the other, have others
};

// REQUIRES: rounds.Divide(), here and below.
RankSubset SubsetOf(const HostRounds& rounds, uint64_t round, int32_t rank);

// Rounds after which all subsets repeat what they do, where `period_of` says it of one of so many
// ranks; 0: never, or after more than a million.
int64_t PeriodOfSubsets(const HostRounds& rounds,
                        const std::function<int64_t(int32_t size)>& period_of);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_HOST_ROUNDS_H_
