#include "core/plan/host_rounds.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace covey {
namespace {

constexpr int64_t kMostRounds = 1'000'000;  // of a period

// By rank: how many on its host come before it.
std::vector<int32_t> PlacesOf(std::span<const int32_t> hosts) {
  std::vector<int32_t> places;
  std::vector<int32_t> counts(hosts.size());
  for (const int32_t host : hosts) places.push_back(counts[static_cast<size_t>(host)]++);
  return places;
}

// The sizes of the subsets for which `subset_of` has the same number, each once.
std::set<int32_t> SizesOf(std::span<const int32_t> subset_of) {
  std::vector<int32_t> counts(subset_of.size());
  for (const int32_t subset : subset_of) ++counts[static_cast<size_t>(subset)];
  std::set<int32_t> sizes(counts.begin(), counts.end());
  sizes.erase(0);
  return sizes;
}

}  // namespace

bool HostRounds::Divide() const {
  if (cross_every <= 1 || hosts.empty()) return false;
  const size_t different = std::set<int32_t>(hosts.begin(), hosts.end()).size();
  return different > 1 && different < hosts.size();
}

RankSubset SubsetOf(const HostRounds& rounds, uint64_t round, int32_t rank) {
  const auto every = static_cast<uint64_t>(rounds.cross_every);
  const bool crosses = (round + 1) % every == 0;
  std::vector<int32_t> places;
  if (crosses) places = PlacesOf(rounds.hosts);
  const std::span<const int32_t> subset_of = crosses ? places : rounds.hosts;
  const int32_t own = subset_of[static_cast<size_t>(rank)];
  RankSubset subset{.ranks = {},
                    .round = crosses ? round / every : round - round / every,
                    .number = static_cast<uint64_t>(own) * 2 + (crosses ? 1 : 0)};
  for (size_t other = 0; other < subset_of.size(); ++other) {
    if (subset_of[other] != own) continue;
    if (static_cast<int32_t>(other) < rank) ++subset.index;
    subset.ranks.push_back(static_cast<int32_t>(other));
  }
  return subset;
}

int64_t PeriodOfSubsets(const HostRounds& rounds,
                        const std::function<int64_t(int32_t size)>& period_of) {
  int64_t turns = 1;  // of cross_every rounds
  const auto repeat = [&](std::span<const int32_t> subset_of, int64_t rounds_in_turn) {
    for (const int32_t size : SizesOf(subset_of)) {
      const int64_t period = size == 1 ? 1 : period_of(size);
      const int64_t own = period == 0 ? 0 : period / std::gcd(period, rounds_in_turn);
      turns = turns == 0 || own == 0 ? 0 : std::lcm(turns, own);
      if (turns > kMostRounds / rounds.cross_every) turns = 0;
    }
  };
  repeat(rounds.hosts, rounds.cross_every - 1);
  repeat(PlacesOf(rounds.hosts), 1);
  return turns * rounds.cross_every;
}

}  // namespace covey
