// Goal: with cross_every = k ranks average within their host, and between hosts in every k-th
// round; W stays doubly stochastic, in pairs where the topology is; where hosts are even the exact
// mean of one_peer and the contraction are those of the parts.
// Method: all named topologies over even and uneven hosts, all ranks of all rounds of a period.
#include "core/plan/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/rng.h"
#include "core/plan/mixing.h"
#include "tests/unit/plan/mixed.h"

namespace covey {
namespace {

constexpr TopologyKind kNamed[] = {TopologyKind::kRing,    TopologyKind::kExponential,
                                   TopologyKind::kOnePeer, TopologyKind::kBipartite,
                                   TopologyKind::kFull,    TopologyKind::kMatching};

// Hosts of so many ranks, one after the other, or dealt out.
std::vector<int32_t> HostsOf(const std::vector<int32_t>& counts, bool dealt = false) {
  std::vector<int32_t> hosts;
  for (size_t h = 0; h < counts.size(); ++h)
    hosts.insert(hosts.end(), static_cast<size_t>(counts[h]), static_cast<int32_t>(h));
  if (!dealt) return hosts;
  std::vector<int32_t> left = counts, mixed;
  while (mixed.size() < hosts.size())
    for (size_t h = 0; h < counts.size(); ++h)
      if (left[h]-- > 0) mixed.push_back(static_cast<int32_t>(h));
  return mixed;
}

Topology On(TopologyKind kind, std::vector<int32_t> hosts, int64_t cross_every) {
  const auto size = static_cast<int32_t>(hosts.size());
  return {.kind = kind,
          .size = size,
          .seed = 7,
          .matrix = {},
          .hosts = std::move(hosts),
          .cross_every = cross_every};
}

std::vector<Topology> AllDivided() {
  std::vector<Topology> all;
  for (const TopologyKind kind : kNamed)
    for (const std::vector<int32_t>& counts : std::vector<std::vector<int32_t>>{
             {2, 2}, {3, 1}, {4, 4}, {2, 2, 2}, {1, 2, 3, 4}, {5, 3}, {1, 1, 4}, {8, 8, 8, 8}})
      for (const bool dealt : {false, true})
        for (const int64_t every : {2, 3, 4})
          all.push_back(On(kind, HostsOf(counts, dealt), every));
  return all;
}

std::string NameIn(const Topology& topology) {
  std::string name = std::string(NameOf(topology.kind)) + " over";
  for (const int32_t host : topology.hosts) name += " " + std::to_string(host);
  return name + ", every " + std::to_string(topology.cross_every);
}

uint64_t RoundsOf(int64_t period) { return period > 0 ? static_cast<uint64_t>(period) : 60; }

bool ShareHost(const Topology& topology, int32_t a, int32_t b) {
  return topology.hosts[static_cast<size_t>(a)] == topology.hosts[static_cast<size_t>(b)];
}

bool IsBetweenHosts(const Topology& topology, uint64_t round) {
  return (round + 1) % static_cast<uint64_t>(topology.cross_every) == 0;
}

TEST(HostRoundsTest, EveryRoundIsDoublyStochasticAndOfItsKind) {
  for (const Topology& topology : AllDivided()) {
    SCOPED_TRACE(NameIn(topology));
    ASSERT_TRUE(Check(topology).ok()) << Check(topology).message();
    bool crossed = false;
    for (uint64_t round = 0; round < RoundsOf(PeriodOf(topology)); ++round) {
      std::vector<double> columns(static_cast<size_t>(topology.size));
      for (int32_t rank = 0; rank < topology.size; ++rank) {
        const MixingRow row = RowOf(topology, round, rank);
        double sum = row.own;
        columns[static_cast<size_t>(rank)] += row.own;
        EXPECT_TRUE(
            std::is_sorted(row.from.begin(), row.from.end(),
                           [](const Neighbor& a, const Neighbor& b) { return a.rank < b.rank; }));
        for (const Neighbor& one : row.from) {
          EXPECT_GT(one.weight, 0);
          ASSERT_NE(ShareHost(topology, rank, one.rank), IsBetweenHosts(topology, round));
          crossed |= IsBetweenHosts(topology, round);
          sum += one.weight;
          columns[static_cast<size_t>(one.rank)] += one.weight;
        }
        EXPECT_NEAR(sum, 1, 1e-12);
      }
      for (const double sum : columns) EXPECT_NEAR(sum, 1, 1e-12);
    }
    EXPECT_TRUE(crossed);
  }
}

TEST(HostRoundsTest, ReceiversAreTheColumnAndRoundsRepeat) {
  for (const Topology& topology : AllDivided()) {
    SCOPED_TRACE(NameIn(topology));
    const auto period = static_cast<uint64_t>(PeriodOf(topology));
    for (uint64_t round = 0; round < RoundsOf(PeriodOf(topology)); ++round)
      for (int32_t rank = 0; rank < topology.size; ++rank) {
        std::vector<int32_t> column;
        for (int32_t other = 0; other < topology.size; ++other)
          for (const Neighbor& one : RowOf(topology, round, other).from)
            if (one.rank == rank) column.push_back(other);
        ASSERT_EQ(ReceiversOf(topology, round, rank), column);
        if (period > 0) {
          ASSERT_EQ(RowOf(topology, round, rank), RowOf(topology, round + period, rank));
        }
      }
  }
}

TEST(HostRoundsTest, PairsAreMutualAndOneOfThemIsFirst) {
  for (const Topology& topology : AllDivided()) {
    if (!CheckPairs(topology).ok()) continue;
    SCOPED_TRACE(NameIn(topology));
    const int64_t period = PairPeriodOf(topology);
    for (uint64_t round = 0; round < RoundsOf(period); ++round)
      for (int32_t rank = 0; rank < topology.size; ++rank) {
        const int32_t partner = PartnerOf(topology, round, rank);
        if (period > 0) {
          ASSERT_EQ(PartnerOf(topology, round + RoundsOf(period), rank), partner);
        }
        if (partner < 0) {
          EXPECT_FALSE(IsFirst(topology, round, rank));
          continue;
        }
        ASSERT_NE(partner, rank);
        ASSERT_EQ(PartnerOf(topology, round, partner), rank);
        EXPECT_NE(IsFirst(topology, round, rank), IsFirst(topology, round, partner));
        EXPECT_NE(ShareHost(topology, rank, partner), IsBetweenHosts(topology, round));
      }
  }
}

// 2^a ranks on each of 2^b hosts: after a rounds within and b between hosts.
TEST(HostRoundsTest, OnePeerIsExactOnEvenHosts) {
  for (const auto& [within, hosts] : {std::pair{1, 1}, {2, 1}, {1, 2}, {3, 2}, {2, 3}})
    for (const int64_t every : {2, 3, 5})
      for (const bool dealt : {false, true}) {
        const Topology topology =
            On(TopologyKind::kOnePeer,
               HostsOf(std::vector<int32_t>(size_t{1} << hosts, 1 << within), dealt), every);
        SCOPED_TRACE(NameIn(topology));
        Rng rng(3);
        std::vector<double> x;
        double mean = 0;
        for (int32_t r = 0; r < topology.size; ++r) {
          x.push_back(static_cast<double>(rng.Below(1000)));
          mean += x.back() / topology.size;
        }
        int crossed = 0, inside = 0;
        for (uint64_t round = 0; crossed < hosts || inside < within; ++round) {
          x = Mixed(topology, round, x);
          (IsBetweenHosts(topology, round) ? crossed : inside) += 1;
        }
        for (const double one : x) EXPECT_NEAR(one, mean, 1e-9);
      }
}

// The formula of the header, for a static W over even hosts.
TEST(HostRoundsTest, ContractionIsThatOfTheParts) {
  for (const TopologyKind kind : {TopologyKind::kRing, TopologyKind::kExponential})
    for (const auto& [within, hosts] : {std::pair{4, 2}, {5, 4}, {4, 7}, {7, 7}})
      for (const int64_t every : {2, 4, 10}) {
        const Topology topology =
            On(kind, HostsOf(std::vector<int32_t>(static_cast<size_t>(hosts), within)), every);
        SCOPED_TRACE(NameIn(topology));
        const auto of = [kind](int32_t size) {
          return Examine({.kind = kind, .size = size, .seed = 1, .matrix = {}}).contraction;
        };
        const auto k = static_cast<double>(every);
        EXPECT_NEAR(Examine(topology).contraction,
                    std::max(std::pow(of(within), (k - 1) / k), std::pow(of(hosts), 1 / k)), 1e-5);
      }
}

TEST(HostRoundsTest, UnevenHostsComeTogetherToo) {
  for (const Topology& topology : AllDivided()) {
    SCOPED_TRACE(NameIn(topology));
    const MixingReport report = Examine(topology);
    EXPECT_TRUE(report.is_connected);
    EXPECT_LT(report.column_error, 1e-12);
    EXPECT_LT(report.contraction, 0.999);
  }
}

TEST(HostRoundsTest, WhereHostsDoNotDivideItIsTheTopologyItself) {
  for (const TopologyKind kind : kNamed)
    for (const std::vector<int32_t>& hosts :
         {std::vector<int32_t>{}, {0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}})
      for (const int64_t every : {1, 3}) {
        Topology topology = On(kind, hosts, every);
        topology.size = 4;
        if (hosts == std::vector<int32_t>{0, 0, 1, 1} && every > 1) continue;
        const Topology plain{.kind = kind, .size = 4, .seed = 7, .matrix = {}};
        EXPECT_EQ(PeriodOf(topology), PeriodOf(plain));
        for (uint64_t round = 0; round < 12; ++round)
          for (int32_t rank = 0; rank < 4; ++rank)
            EXPECT_EQ(RowOf(topology, round, rank), RowOf(plain, round, rank));
      }
}

// Hosts of one size have draws of their own.
TEST(HostRoundsTest, MatchingsOfTwoHostsDiffer) {
  const Topology topology = On(TopologyKind::kMatching, HostsOf({4, 4}), 2);
  int differ = 0;
  for (uint64_t round = 0; round < 100; round += 2)
    differ += PartnerOf(topology, round, 0) + 4 != PartnerOf(topology, round, 4) ? 1 : 0;
  EXPECT_GT(differ, 10);
}

TEST(HostRoundsTest, LongPeriodsAreNone) {
  const Topology topology =
      On(TopologyKind::kFull, HostsOf({18, 20, 24, 30, 32, 38, 42, 44, 48}), 1000);
  EXPECT_EQ(PairPeriodOf(topology), 0);
  EXPECT_EQ(PeriodOf(topology), 1000);
}

TEST(HostRoundsTest, BadOnesAreRefusedWithTheReason) {
  const auto message = [](const Topology& topology) { return Check(topology).message(); };
  EXPECT_EQ(message(On(TopologyKind::kRing, {0, 0, 1}, 0)),
            "cross_every of a topology is a number from 1 to 1000, not 0");
  EXPECT_EQ(message(On(TopologyKind::kRing, {0, 0, 1}, 1001)),
            "cross_every of a topology is a number from 1 to 1000, not 1001");
  EXPECT_EQ(message(On(TopologyKind::kRing, {0, 0, 3}, 2)),
            "hosts of a topology have numbers from 0 to 2, not 3");
  Topology few = On(TopologyKind::kRing, {0, 1}, 2);
  few.size = 3;
  EXPECT_EQ(message(few), "a topology of 3 ranks has as many hosts of ranks, not 2");
  Topology own{.kind = TopologyKind::kMatrix, .size = 2, .seed = 1, .matrix = {.5, .5, .5, .5}};
  own.cross_every = 2;
  EXPECT_EQ(message(own),
            "the matrix of a topology says all neighbors, those on other hosts too: cross_every is "
            "for topologies with a name");
}

}  // namespace
}  // namespace covey
