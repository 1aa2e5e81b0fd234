// The neighbors of each rank where no version is of all: a topology is a value, and gives for each
// round the mixing matrix W of gossip, row by row. Pure; any thread.
//
// Round t, P ranks: x_i becomes the sum of W_ij x_j. In every row own weight and those of the
// neighbours are positive (a user's matrix: not negative) and sum to 1; but for a user's matrix the
// columns do, too (W is doubly stochastic), so that averaging moves no mean.
//
//   kind         in round t rank i takes from                                    any P   in pairs
//   ring         i - 1 and i + 1                                                 yes     even P
//   exponential  i - 2^k for all 2^k < P                                         yes
//   one_peer     i - 2^(t mod ceil(log2 P)); for P = 2^d the exact mean after    yes
//                d rounds from a multiple of d on
//   bipartite    its partner: an even rank i + h(t), an odd one i - h(t), with   even    yes
//                the odd hops h = 1, -1, 3, -3, 5, -5, 9, -9, ... below P
//   full         all                                                             yes     yes
//   matching     its partner: all are matched at random, by a seed that all      yes     yes
//                share; when P is odd one, another each round, is by itself
//   matrix       what its row of a user's matrix says                            yes
//
// In pairs: for asynchronous averaging (AD-PSGD, SwarmSGD) a round is a set of pairs, in which no
// rank is twice. On a ring they are the edges, every other one in turn; on the full graph all pairs
// in turn, P - 1 rounds (P when it is odd: the circle method of round-robin tournaments).
//
// Where ranks lie on several hosts, cross_every = k makes them average within their host, and only
// in every k-th round with ranks of others (core/plan/host_rounds.h).
//
// Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, ICML
// 2018, arXiv:1710.06952. Assran, Loizou, Ballas, Rabbat: Stochastic Gradient Push for Distributed
// Deep Learning, ICML 2019, arXiv:1811.10792. Ying, Yuan, Chen, Hu, Pan, Yin: Exponential Graph is
// Provably Efficient for Decentralized Deep Training, NeurIPS 2021, arXiv:2110.13363.
#ifndef COVEY_CORE_PLAN_TOPOLOGY_H_
#define COVEY_CORE_PLAN_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace covey {

enum class TopologyKind : uint8_t {
  kRing,
  kExponential,
  kOnePeer,
  kBipartite,
  kFull,
  kMatching,
  kMatrix,
};
inline constexpr int kNumTopologyKinds = 7;
// Those that give pairs.
inline constexpr TopologyKind kPairKinds[] = {TopologyKind::kRing, TopologyKind::kBipartite,
                                              TopologyKind::kFull, TopologyKind::kMatching};
inline constexpr int kNumPairKinds = 4;

const char* NameOf(TopologyKind kind);  // "one_peer"

struct Topology {
  TopologyKind kind = TopologyKind::kRing;
  int32_t size = 1;            // P
  uint64_t seed = 1;           // matching
  std::vector<double> matrix;  // matrix: P x P, by rows
  // By rank: the host it lies on, a number below P. Empty: all lie on one.
  std::vector<int32_t> hosts = {};
  int64_t cross_every = 1;  // so many rounds for one between hosts; 1: hosts are all the same

  bool operator==(const Topology&) const = default;
};

// One row of W.
struct Neighbor {
  int32_t rank = 0;
  double weight = 0;

  bool operator==(const Neighbor&) const = default;
};
struct MixingRow {
  double own = 1;
  std::vector<Neighbor> from;  // ascending; without the rank itself

  bool operator==(const MixingRow&) const = default;
};

inline constexpr int64_t kMostCrossEvery = 1000;

// "ring" and so on, but not "matrix". InvalidArgument names what there is and the nearest.
Status KindOf(std::string_view name, TopologyKind* kind);

// Whether there is such a topology: InvalidArgument says why not (an odd P for bipartite, the row
// of a matrix that does not sum to 1). All functions below require it.
Status Check(const Topology& topology);
// Likewise, that it gives pairs.
Status CheckPairs(const Topology& topology);

// Rounds after which W repeats itself; 0: it never does, or after more than a million.
int64_t PeriodOf(const Topology& topology);

MixingRow RowOf(const Topology& topology, uint64_t round, int32_t rank);
// Those that take from `rank` in that round: its column, without itself. Ascending.
std::vector<int32_t> ReceiversOf(const Topology& topology, uint64_t round, int32_t rank);

// In pairs: the rounds until they repeat themselves (0: never), and the partner of `rank` in that
// round; -1: none. REQUIRES: CheckPairs.
int64_t PairPeriodOf(const Topology& topology);
int32_t PartnerOf(const Topology& topology, uint64_t round, int32_t rank);
// Of each pair exactly one is first: the even rank on a ring and a bipartite graph, on the full one
// the lower and the higher period by period, in a matching one at random. Where rounds divide by
// hosts, an even rank is one with an even place among those that average; an odd number of these
// has the pairs of a tournament.
bool IsFirst(const Topology& topology, uint64_t round, int32_t rank);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_TOPOLOGY_H_
