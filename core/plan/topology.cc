#include "core/plan/topology.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/edit_distance.h"
#include "core/base/rng.h"
#include "core/plan/host_rounds.h"

namespace covey {
namespace {

constexpr double kMostRounding = 1e-6;  // of the sum of a row: weights may have been float32

constexpr std::array<const char*, kNumTopologyKinds> kNames = {
    "ring", "exponential", "one_peer", "bipartite", "full", "matching", "matrix"};

int32_t Wrapped(int64_t rank, int32_t size) {
  const int64_t rest = rank % size;
  return static_cast<int32_t>(rest < 0 ? rest + size : rest);
}

// ceil(log2 size); 1 at least, so that it divides.
int64_t LogOf(int32_t size) {
  int64_t log = 1;
  while ((int64_t{1} << log) < size) ++log;
  return log;
}

// Equal weights for `rank` and those in `ranks`; a rank that comes twice counts once.
MixingRow Equally(std::vector<int32_t> ranks, int32_t rank) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  ranks.erase(std::remove(ranks.begin(), ranks.end(), rank), ranks.end());
  const double weight = 1 / static_cast<double>(ranks.size() + 1);
  MixingRow row{.own = weight, .from = {}};
  for (const int32_t other : ranks) row.from.push_back({other, weight});
  return row;
}

// 1, -1, 3, -3, 5, -5, 9, -9, ...: odd, so that an even rank meets an odd one.
std::vector<int32_t> HopsOf(int32_t size) {
  std::vector<int32_t> hops;
  for (int64_t hop = 1; hop < size; hop = hop == 1 ? 3 : 2 * hop - 1)
    for (const int64_t signed_hop : {hop, -hop}) {
      const int32_t ahead = Wrapped(signed_hop, size);
      const bool is_known = std::any_of(
          hops.begin(), hops.end(), [&](int32_t known) { return Wrapped(known, size) == ahead; });
      if (!is_known) hops.push_back(static_cast<int32_t>(signed_hop));
    }
  return hops;
}

int32_t AcrossOf(int32_t size, int32_t hop, int32_t rank) {
  return Wrapped(int64_t{rank} + (rank % 2 == 0 ? hop : -hop), size);
}

// The circle method: of P' ranks (P, or P + 1 with a dummy) the last stands still, and the others
// go round it.
int32_t TournamentPartner(int32_t size, uint64_t round, int32_t rank) {
  const int32_t seats = size + size % 2;
  const int32_t circle = seats - 1;
  if (circle == 1) return size == 2 ? 1 - rank : -1;
  const auto turn = static_cast<int64_t>(round % static_cast<uint64_t>(circle));
  // i and j meet when i + j = turn modulo the circle; a rank that would meet itself meets the last.
  int32_t partner;
  if (rank == circle) {
    partner = Wrapped(turn * ((circle + 1) / 2), circle);  // half of turn, modulo an odd number
  } else {
    partner = Wrapped(turn - rank, circle);
    if (partner == rank) partner = circle;
  }
  return partner < size ? partner : -1;
}

// A random order of the ranks; the first meets the second, and so on. The last rank meets none when
// P is odd.
struct Seat {
  int32_t partner;
  bool is_first;
};
Seat MatchedSeat(const Topology& topology, uint64_t round, int32_t rank) {
  const auto size = static_cast<size_t>(topology.size);
  std::vector<int32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  Rng rng(Rng(Rng(topology.seed).Next() + round).Next());
  for (size_t left = size; left > 1; --left) std::swap(order[left - 1], order[rng.Below(left)]);
  const auto at = static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  const size_t other = at % 2 == 0 ? at + 1 : at - 1;
  return {other < size ? order[other] : -1, at % 2 == 0};
}

MixingRow PairRow(int32_t partner, int32_t rank) {
  return partner < 0 ? MixingRow{} : Equally({partner}, rank);
}

// Whether all pairs of it meet in turn. An odd number of ranks has no other pairs than these and
// random ones.
bool IsTournament(const Topology& topology) {
  return topology.kind == TopologyKind::kFull ||
         (topology.kind != TopologyKind::kMatching && topology.size % 2 == 1);
}

HostRounds RoundsOf(const Topology& topology) { return {topology.hosts, topology.cross_every}; }

// That of so many of its ranks, without hosts. Subsets of the same size draw differently.
Topology AmongOf(const Topology& topology, size_t size, uint64_t number) {
  return {.kind = topology.kind,
          .size = static_cast<int32_t>(size),
          .seed = topology.seed ^ ((number + 1) * 0x9e3779b97f4a7c15u),
          .matrix = {}};
}

double WeightOf(const Topology& topology, int32_t row, int32_t column) {
  return topology.matrix[static_cast<size_t>(row) * static_cast<size_t>(topology.size) +
                         static_cast<size_t>(column)];
}

MixingRow MatrixRow(const Topology& topology, int32_t rank) {
  MixingRow row{.own = WeightOf(topology, rank, rank), .from = {}};
  for (int32_t other = 0; other < topology.size; ++other) {
    const double weight = WeightOf(topology, rank, other);
    if (other != rank && weight != 0) row.from.push_back({other, weight});
  }
  return row;
}

std::string Written(double number) {
  std::string text = std::to_string(number);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

Status CheckMatrix(const Topology& topology) {
  const auto size = static_cast<size_t>(topology.size);
  if (topology.matrix.size() != size * size)
    return Status::InvalidArgument("the matrix of a topology of " + std::to_string(size) +
                                   " ranks has " + std::to_string(size * size) + " weights, not " +
                                   std::to_string(topology.matrix.size()));
  for (size_t row = 0; row < size; ++row) {
    double sum = 0;
    for (size_t column = 0; column < size; ++column) {
      const double weight = topology.matrix[row * size + column];
      if (!std::isfinite(weight) || weight < 0)
        return Status::InvalidArgument("weight [" + std::to_string(row) + "][" +
                                       std::to_string(column) + "] of the topology's matrix is " +
                                       Written(weight) + ": weights are 0 or more");
      sum += weight;
    }
    if (std::abs(sum - 1) > kMostRounding)
      return Status::InvalidArgument("row " + std::to_string(row) +
                                     " of the topology's matrix sums to " + Written(sum) +
                                     ", not to 1");
  }
  return Status::Ok();
}

Status CheckHosts(const Topology& topology) {
  if (topology.cross_every < 1 || topology.cross_every > kMostCrossEvery)
    return Status::InvalidArgument("cross_every of a topology is a number from 1 to " +
                                   std::to_string(kMostCrossEvery) + ", not " +
                                   std::to_string(topology.cross_every));
  if (topology.kind == TopologyKind::kMatrix && topology.cross_every > 1)
    return Status::InvalidArgument(
        "the matrix of a topology says all neighbors, those on other hosts too: cross_every is for "
        "topologies with a name");
  if (topology.hosts.empty()) return Status::Ok();
  if (topology.hosts.size() != static_cast<size_t>(topology.size))
    return Status::InvalidArgument("a topology of " + std::to_string(topology.size) +
                                   " ranks has as many hosts of ranks, not " +
                                   std::to_string(topology.hosts.size()));
  for (const int32_t host : topology.hosts)
    if (host < 0 || host >= topology.size)
      return Status::InvalidArgument("hosts of a topology have numbers from 0 to " +
                                     std::to_string(topology.size - 1) + ", not " +
                                     std::to_string(host));
  return Status::Ok();
}

}  // namespace

const char* NameOf(TopologyKind kind) { return kNames[static_cast<size_t>(kind)]; }

Status KindOf(std::string_view name, TopologyKind* kind) {
  size_t nearest = 0;
  std::string all;
  for (size_t i = 0; i + 1 < kNames.size(); ++i) {
    if (name == kNames[i]) {
      *kind = static_cast<TopologyKind>(i);
      return Status::Ok();
    }
    if (EditDistance(name, kNames[i]) < EditDistance(name, kNames[nearest])) nearest = i;
    all += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  return Status::InvalidArgument("there is no topology '" + std::string(name) + "', but " + all +
                                 " (did you mean " + kNames[nearest] + "?)");
}

Status Check(const Topology& topology) {
  if (topology.size < 1)
    return Status::InvalidArgument("a topology has 1 rank or more, not " +
                                   std::to_string(topology.size));
  RETURN_IF_ERROR(CheckHosts(topology));
  if (topology.kind == TopologyKind::kMatrix) return CheckMatrix(topology);
  if (topology.kind == TopologyKind::kBipartite && topology.size > 1 && topology.size % 2 == 1)
    return Status::InvalidArgument(
        "topology bipartite pairs each even rank with an odd one, so it needs an even number of "
        "ranks, not " +
        std::to_string(topology.size) + "; matching and full take any");
  return Status::Ok();
}

Status CheckPairs(const Topology& topology) {
  Status status = Check(topology);
  if (!status.ok()) return status;
  switch (topology.kind) {
    case TopologyKind::kBipartite:
    case TopologyKind::kFull:
    case TopologyKind::kMatching:
      return status;
    case TopologyKind::kRing:
      if (topology.size % 2 == 0 || topology.size == 1) return status;
      return Status::InvalidArgument(
          "a ring of " + std::to_string(topology.size) +
          " ranks does not fall into pairs: it needs an even number; matching and full take any");
    default:
      return Status::InvalidArgument(std::string("topology ") + NameOf(topology.kind) +
                                     " gives no pairs; ring, bipartite, full and matching do");
  }
}

int64_t PeriodOf(const Topology& topology) {
  if (const HostRounds rounds = RoundsOf(topology); rounds.Divide())
    return PeriodOfSubsets(rounds, [&](int32_t size) {
      return PeriodOf(AmongOf(topology, static_cast<size_t>(size), 0));
    });
  switch (topology.kind) {
    case TopologyKind::kOnePeer:
      return LogOf(topology.size);
    case TopologyKind::kBipartite:
    case TopologyKind::kMatching:
      return PairPeriodOf(topology);
    default:
      return 1;
  }
}

MixingRow RowOf(const Topology& topology, uint64_t round, int32_t rank) {
  const int32_t size = topology.size;
  DCHECK(rank >= 0 && rank < size, "a rank of the topology");
  if (const HostRounds rounds = RoundsOf(topology); rounds.Divide()) {
    const RankSubset subset = SubsetOf(rounds, round, rank);
    const Topology among = AmongOf(topology, subset.ranks.size(), subset.number);
    MixingRow row = RowOf(among, subset.round, subset.index);
    for (Neighbor& one : row.from) one.rank = subset.ranks[static_cast<size_t>(one.rank)];
    return row;
  }
  std::vector<int32_t> from;
  switch (topology.kind) {
    case TopologyKind::kRing:
      return Equally({Wrapped(int64_t{rank} - 1, size), Wrapped(int64_t{rank} + 1, size)}, rank);
    case TopologyKind::kExponential:
      for (int64_t hop = 1; hop < size; hop *= 2) from.push_back(Wrapped(rank - hop, size));
      return Equally(std::move(from), rank);
    case TopologyKind::kOnePeer: {
      const int64_t hop = int64_t{1} << (round % static_cast<uint64_t>(LogOf(size)));
      return Equally({Wrapped(rank - hop, size)}, rank);
    }
    case TopologyKind::kBipartite:
    case TopologyKind::kMatching:
      return PairRow(PartnerOf(topology, round, rank), rank);
    case TopologyKind::kFull:
      from.resize(static_cast<size_t>(size));
      std::iota(from.begin(), from.end(), 0);
      return Equally(std::move(from), rank);
    case TopologyKind::kMatrix:
      break;
  }
  return MatrixRow(topology, rank);
}

std::vector<int32_t> ReceiversOf(const Topology& topology, uint64_t round, int32_t rank) {
  if (const HostRounds rounds = RoundsOf(topology); rounds.Divide()) {
    const RankSubset subset = SubsetOf(rounds, round, rank);
    const Topology among = AmongOf(topology, subset.ranks.size(), subset.number);
    std::vector<int32_t> taking = ReceiversOf(among, subset.round, subset.index);
    for (int32_t& one : taking) one = subset.ranks[static_cast<size_t>(one)];
    return taking;
  }
  const int32_t size = topology.size;
  std::vector<int32_t> receivers;
  switch (topology.kind) {
    case TopologyKind::kExponential:
      for (int64_t hop = 1; hop < size; hop *= 2) receivers.push_back(Wrapped(rank + hop, size));
      break;
    case TopologyKind::kOnePeer:
      receivers.push_back(
          Wrapped(rank + (int64_t{1} << (round % static_cast<uint64_t>(LogOf(size)))), size));
      break;
    case TopologyKind::kMatrix:
      for (int32_t other = 0; other < size; ++other)
        if (WeightOf(topology, other, rank) != 0) receivers.push_back(other);
      break;
    default:  // a rank that gives also takes
      for (const Neighbor& neighbor : RowOf(topology, round, rank).from)
        receivers.push_back(neighbor.rank);
  }
  std::sort(receivers.begin(), receivers.end());
  receivers.erase(std::remove(receivers.begin(), receivers.end(), rank), receivers.end());
  return receivers;
}

int64_t PairPeriodOf(const Topology& topology) {
  if (const HostRounds rounds = RoundsOf(topology); rounds.Divide())
    return PeriodOfSubsets(rounds, [&](int32_t size) {
      return PairPeriodOf(AmongOf(topology, static_cast<size_t>(size), 0));
    });
  if (IsTournament(topology)) return std::max(1, topology.size + topology.size % 2 - 1);
  switch (topology.kind) {
    case TopologyKind::kRing:
      return topology.size > 2 ? 2 : 1;
    case TopologyKind::kBipartite:
      return std::max<int64_t>(1, static_cast<int64_t>(HopsOf(topology.size).size()));
    default:
      return 0;
  }
}

int32_t PartnerOf(const Topology& topology, uint64_t round, int32_t rank) {
  const int32_t size = topology.size;
  DCHECK(rank >= 0 && rank < size, "a rank of the topology");
  if (size == 1) return -1;
  if (const HostRounds rounds = RoundsOf(topology); rounds.Divide()) {
    const RankSubset subset = SubsetOf(rounds, round, rank);
    const Topology among = AmongOf(topology, subset.ranks.size(), subset.number);
    const int32_t partner = PartnerOf(among, subset.round, subset.index);
    return partner < 0 ? -1 : subset.ranks[static_cast<size_t>(partner)];
  }
  if (IsTournament(topology)) return TournamentPartner(size, round, rank);
  switch (topology.kind) {
    case TopologyKind::kRing:
      return AcrossOf(size, round % 2 == 0 ? 1 : -1, rank);
    case TopologyKind::kBipartite: {
      const std::vector<int32_t> hops = HopsOf(size);
      return AcrossOf(size, hops[round % hops.size()], rank);
    }
    case TopologyKind::kMatching:
      return MatchedSeat(topology, round, rank).partner;
    default:
      break;
  }
  CHECK(false, "a topology that gives pairs");
  return -1;
}

bool IsFirst(const Topology& topology, uint64_t round, int32_t rank) {
  if (const HostRounds rounds = RoundsOf(topology); rounds.Divide()) {
    const RankSubset subset = SubsetOf(rounds, round, rank);
    const Topology among = AmongOf(topology, subset.ranks.size(), subset.number);
    return IsFirst(among, subset.round, subset.index);
  }
  const int32_t partner = PartnerOf(topology, round, rank);
  if (partner < 0) return false;
  if (topology.kind == TopologyKind::kMatching) return MatchedSeat(topology, round, rank).is_first;
  if (!IsTournament(topology)) return rank % 2 == 0;
  const uint64_t period = round / static_cast<uint64_t>(PairPeriodOf(topology));
  return (rank < partner) == (period % 2 == 0);
}

}  // namespace covey
