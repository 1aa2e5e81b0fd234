#include "core/plan/host_rounds.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace covey {
namespace {

constexpr int64_t kMostRounds = 1'000'000;  // of a period


// By rank: how many on its host come before it.
std::vector<int32_t> PlacesOf(const Topology& topology) {
  std::vector<int32_t> places;
  std::vector<int32_t> counts(static_cast<size_t>(topology.size));
  for (const int32_t host : topology.hosts)
    places.push_back(counts[static_cast<size_t>(host)]++);
  return places;
}

// The sizes of the groups of ranks for which `group_of` has the same number, each once.
std::set<int32_t> SizesOf(const std::vector<int32_t>& group_of) {
  std::vector<int32_t> counts(group_of.size());
  for (const int32_t group : group_of) ++counts[static_cast<size_t>(group)];
  std::set<int32_t> sizes(counts.begin(), counts.end());
  sizes.erase(0);
  return sizes;
}

// Of `size` of its ranks. Subsets of the same size draw differently.
Topology AmongOf(const Topology& topology, int32_t size, uint64_t number) {
  return {.kind = topology.kind,
          .size = size,
          .seed = topology.seed ^ ((number + 1) * 0x9e3779b97f4a7c15u),
          .matrix = {}};
}

}  // namespace

bool DividesByHosts(const Topology& topology) {
  if (topology.cross_every <= 1 || topology.hosts.empty()) return false;
  const auto hosts = std::set<int32_t>(topology.hosts.begin(), topology.hosts.end()).size();
  return hosts > 1 && hosts < topology.hosts.size();
}

RankSubset SubsetOf(const Topology& topology, uint64_t round, int32_t rank) {
  const auto every = static_cast<uint64_t>(topology.cross_every);
  const bool crosses = (round + 1) % every == 0;
  const std::vector<int32_t> places = crosses ? PlacesOf(topology) : std::vector<int32_t>{};
  const std::vector<int32_t>& group_of = crosses ? places : topology.hosts;
  const int32_t own = group_of[static_cast<size_t>(rank)];
  RankSubset subset{.round = crosses ? round / every : round - round / every};
  for (int32_t other = 0; other < topology.size; ++other) {
    if (group_of[static_cast<size_t>(other)] != own) continue;
    if (other < rank) ++subset.index;
    subset.ranks.push_back(other);
  }
  const auto number = static_cast<uint64_t>(own) * 2 + (crosses ? 1 : 0);
  subset.topology = AmongOf(topology, static_cast<int32_t>(subset.ranks.size()), number);
  return subset;
}

int64_t PeriodOfSubsets(const Topology& topology, int64_t (*period_of)(const Topology&)) {
  int64_t turns = 1;  // of cross_every rounds
  const auto repeat = [&](const std::vector<int32_t>& group_of, int64_t rounds_in_turn) {
    for (const int32_t size : SizesOf(group_of)) {
      const int64_t period = size == 1 ? 1 : period_of(AmongOf(topology, size, 0));
      const int64_t own = period == 0 ? 0 : period / std::gcd(period, rounds_in_turn);
      turns = turns == 0 || own == 0 ? 0 : std::lcm(turns, own);
      if (turns > kMostRounds / topology.cross_every) turns = 0;
    }
  };
  repeat(topology.hosts, topology.cross_every - 1);
  repeat(PlacesOf(topology), 1);
  return turns * topology.cross_every;
}

}  // namespace covey
