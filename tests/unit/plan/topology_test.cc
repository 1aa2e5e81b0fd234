// Goal: topologies are what their table says at any number of ranks: doubly stochastic, symmetric
// where pairs are promised, exact where the exact mean is promised; bad ones are refused by name.
// Method: all ranks of all rounds of a period, for many P to 128; models as numbers.
#include "core/plan/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <set>

#include "core/base/rng.h"
#include "core/plan/mixing.h"
#include "tests/unit/plan/mixed.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr TopologyKind kBuiltIn[] = {TopologyKind::kRing,    TopologyKind::kExponential,
                                     TopologyKind::kOnePeer, TopologyKind::kBipartite,
                                     TopologyKind::kFull,    TopologyKind::kMatching};
constexpr int32_t kSizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                              16, 17, 24, 31, 32, 33, 48, 61, 63, 64, 97, 128};

std::vector<Topology> AllValid() {
  std::vector<Topology> all;
  for (const TopologyKind kind : kBuiltIn)
    for (const int32_t size : kSizes)
      if (const Topology topology{kind, size, kSeed, {}}; Check(topology).ok())
        all.push_back(topology);
  return all;
}

std::string NameIn(const Topology& topology) {
  return std::string(NameOf(topology.kind)) + " of " + std::to_string(topology.size);
}

uint64_t RoundsOf(int64_t period) { return period > 0 ? static_cast<uint64_t>(period) : 40; }

std::vector<double> Drawn(int32_t size, uint64_t seed) {
  Rng rng(seed);
  std::vector<double> x(static_cast<size_t>(size));
  for (double& one : x) one = static_cast<double>(rng.Below(2001)) - 1000;
  return x;
}

double MeanOf(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one;
  return sum / static_cast<double>(x.size());
}

double SpreadOf(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += (one - MeanOf(x)) * (one - MeanOf(x));
  return sum;
}

TEST(TopologyTest, EveryRoundIsDoublyStochastic) {
  for (const Topology& topology : AllValid()) {
    SCOPED_TRACE(NameIn(topology));
    for (uint64_t round = 0; round < RoundsOf(PeriodOf(topology)); ++round) {
      std::vector<double> columns(static_cast<size_t>(topology.size));
      for (int32_t rank = 0; rank < topology.size; ++rank) {
        const MixingRow row = RowOf(topology, round, rank);
        double sum = row.own;
        columns[static_cast<size_t>(rank)] += row.own;
        for (const Neighbor& one : row.from) {
          EXPECT_NE(one.rank, rank);
          EXPECT_GT(one.weight, 0);
          sum += one.weight;
          columns[static_cast<size_t>(one.rank)] += one.weight;
        }
        EXPECT_NEAR(sum, 1, 1e-12);
      }
      for (const double sum : columns) EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(TopologyTest, WhoTakesFromARankIsInItsColumn) {
  std::vector<Topology> all = AllValid();
  all.push_back({TopologyKind::kMatrix, 3, 1, {.5, .5, 0, 0, .5, .5, .5, 0, .5}});
  for (const Topology& topology : all) {
    if (topology.size > 33) continue;
    SCOPED_TRACE(NameIn(topology));
    for (uint64_t round = 0; round < RoundsOf(PeriodOf(topology)); ++round)
      for (int32_t rank = 0; rank < topology.size; ++rank) {
        std::vector<int32_t> expected;
        for (int32_t other = 0; other < topology.size; ++other)
          for (const Neighbor& one : RowOf(topology, round, other).from)
            if (one.rank == rank) expected.push_back(other);
        EXPECT_EQ(ReceiversOf(topology, round, rank), expected);
      }
  }
}

TEST(TopologyTest, RoundsRepeatAfterThePeriod) {
  for (const Topology& topology : AllValid()) {
    const auto period = static_cast<uint64_t>(PeriodOf(topology));
    for (uint64_t round = 0; round < period; ++round)
      for (int32_t rank = 0; rank < topology.size; ++rank)
        EXPECT_EQ(RowOf(topology, round, rank), RowOf(topology, round + period, rank))
            << NameIn(topology) << ", round " << round;
  }
}

TEST(TopologyTest, PairsAreMutualAndNobodyIsInTwo) {
  for (const Topology& topology : AllValid()) {
    if (!CheckPairs(topology).ok()) continue;
    SCOPED_TRACE(NameIn(topology));
    for (uint64_t round = 0; round < RoundsOf(PairPeriodOf(topology)); ++round) {
      int alone = 0;
      for (int32_t rank = 0; rank < topology.size; ++rank) {
        const int32_t partner = PartnerOf(topology, round, rank);
        if (partner < 0) {
          ++alone;
          continue;
        }
        ASSERT_LT(partner, topology.size);
        EXPECT_NE(partner, rank);
        EXPECT_EQ(PartnerOf(topology, round, partner), rank);
      }
      EXPECT_EQ(alone, topology.size % 2) << "round " << round;
    }
  }
}

TEST(TopologyTest, OfEachPairOneIsFirstAndAllAreAsOften) {
  for (const Topology& topology : AllValid()) {
    if (!CheckPairs(topology).ok() || topology.size == 1) continue;
    const uint64_t rounds = topology.kind == TopologyKind::kMatching
                                ? 1000
                                : 2 * static_cast<uint64_t>(PairPeriodOf(topology));
    const bool has_sides =
        topology.kind == TopologyKind::kRing || topology.kind == TopologyKind::kBipartite;
    const int32_t stride = topology.size > 24 ? 7 : 1;
    for (int32_t rank = 0; rank < topology.size; rank += stride) {
      double first = 0, met = 0;
      for (uint64_t round = 0; round < rounds; ++round) {
        const int32_t partner = PartnerOf(topology, round, rank);
        const bool is_first = IsFirst(topology, round, rank);
        if (partner >= 0) {
          EXPECT_NE(is_first, IsFirst(topology, round, partner)) << NameIn(topology);
          ++met;
        } else {
          EXPECT_FALSE(is_first);
        }
        first += is_first ? 1 : 0;
      }
      if (has_sides)
        EXPECT_EQ(first, rank % 2 == 0 ? met : 0) << NameIn(topology);
      else
        EXPECT_NEAR(first, met / 2, 3 * std::sqrt(1000)) << NameIn(topology);
    }
  }
}

TEST(TopologyTest, BipartitePairsAreOfAnEvenAndAnOddRank) {
  for (const int32_t size : {2, 4, 6, 8, 10, 16, 64, 100}) {
    const Topology topology{TopologyKind::kBipartite, size, 1, {}};
    std::set<int32_t> partners;
    for (uint64_t round = 0; round < RoundsOf(PairPeriodOf(topology)); ++round)
      for (int32_t rank = 0; rank < size; ++rank) {
        const int32_t partner = PartnerOf(topology, round, rank);
        EXPECT_EQ((rank + partner) % 2, 1);
        if (rank == 0) {
          EXPECT_TRUE(partners.insert(partner).second) << "twice in a period";
        }
      }
  }
}

TEST(TopologyTest, FullPairsMeetEverybodyOnceInATournament) {
  for (const int32_t size : kSizes) {
    const Topology topology{TopologyKind::kFull, size, 1, {}};
    for (int32_t rank = 0; rank < size; ++rank) {
      std::multiset<int32_t> met;
      for (uint64_t round = 0; round < RoundsOf(PairPeriodOf(topology)); ++round)
        met.insert(PartnerOf(topology, round, rank));
      met.erase(-1);
      EXPECT_EQ(met.size(), static_cast<size_t>(size - 1));
      EXPECT_EQ(std::set<int32_t>(met.begin(), met.end()).size(), met.size());
    }
  }
}

TEST(TopologyTest, OnePeerIsExactForPowersOfTwoOnly) {
  for (const int32_t size : kSizes) {
    const Topology topology{TopologyKind::kOnePeer, size, 1, {}};
    std::vector<double> x = Drawn(size, kSeed);
    const double before = SpreadOf(x);
    const double mean = MeanOf(x);
    for (uint64_t round = 0; round < RoundsOf(PeriodOf(topology)); ++round)
      x = Mixed(topology, round, x);
    EXPECT_NEAR(MeanOf(x), mean, 1e-9);
    if (std::has_single_bit(static_cast<uint32_t>(size)))
      EXPECT_LT(SpreadOf(x), 1e-18 * std::max(before, 1.0)) << size;
    else
      EXPECT_GT(SpreadOf(x), 1e-9 * before) << size;
  }
}

TEST(TopologyTest, MatchingsDependOnSeedAndRoundAndAreFair) {
  const Topology one{TopologyKind::kMatching, 8, 1, {}}, other{TopologyKind::kMatching, 8, 2, {}};
  int differ = 0;
  std::vector<int> met(8);
  constexpr int kRounds = 7000;
  for (uint64_t round = 0; round < kRounds; ++round) {
    if (PartnerOf(one, round, 0) != PartnerOf(other, round, 0)) ++differ;
    ++met[static_cast<size_t>(PartnerOf(one, round, 0))];
  }
  EXPECT_GT(differ, kRounds / 2);
  for (size_t partner = 1; partner < met.size(); ++partner)
    EXPECT_NEAR(met[partner], kRounds / 7, 150) << partner;  // five standard deviations
}

TEST(MixingTest, ContractionIsTheOneOfTheFormulas) {
  for (const int32_t size : {3, 5, 8, 16, 33, 64}) {
    double expected = 0;  // of the ring's eigenvalues but that of the mean
    for (int32_t k = 1; k < size; ++k)
      expected =
          std::max(expected, std::abs(1 + 2 * std::cos(2 * std::numbers::pi * k / size)) / 3);
    EXPECT_NEAR(Examine({TopologyKind::kRing, size, 1, {}}).contraction, expected, 1e-6) << size;
    EXPECT_NEAR(Examine({TopologyKind::kFull, size, 1, {}}).contraction, 0, 1e-9) << size;
  }
  EXPECT_NEAR(Examine({TopologyKind::kOnePeer, 16, 1, {}}).contraction, 0, 1e-6);
  EXPECT_GT(Examine({TopologyKind::kOnePeer, 12, 1, {}}).contraction, 0.1);
}

TEST(MixingTest, NoRoundMakesTheSpreadLargerThanTheContractionSays) {
  for (const Topology& topology : AllValid()) {
    if (PeriodOf(topology) == 0) continue;
    const MixingReport report = Examine(topology);
    const auto rounds = RoundsOf(PeriodOf(topology));
    std::vector<double> x = Drawn(topology.size, kSeed + 1);
    const double before = SpreadOf(x);
    for (uint64_t round = 0; round < rounds; ++round) {
      const double last = SpreadOf(x);
      x = Mixed(topology, round, x);
      EXPECT_LE(SpreadOf(x), last * (1 + 1e-12) + 1e-9) << NameIn(topology);
    }
    EXPECT_LE(std::sqrt(SpreadOf(x)),
              std::sqrt(before) * std::pow(report.contraction, rounds) * (1 + 1e-5) + 1e-6)
        << NameIn(topology);
    EXPECT_LT(report.column_error, 1e-12);
  }
}

// Over 64 rounds the product of the matrices is smaller than what is rounded, and yet it is not
// nothing, but where three matchings in a row happen to make all equal.
TEST(MixingTest, RandomMatchingsContractAsTheirExpectationSays) {
  for (const int32_t size : {5, 7, 9, 16, 31, 64}) {
    // Averages of pairs are projections, so that E[W'W] = E[W]; a pair is as likely as another.
    const double met = size % 2 == 0 ? 1.0 : 1 - 1.0 / size;
    const double expected = std::sqrt(1 - met / 2 - met / 2 / (size - 1));
    const MixingReport report = Examine({TopologyKind::kMatching, size, kSeed, {}});
    EXPECT_GT(report.contraction, expected - 0.25) << size;
    EXPECT_LT(report.contraction, expected + 0.1) << size;
  }
  EXPECT_EQ(Examine({TopologyKind::kMatching, 4, kSeed, {}}).contraction, 0);
  EXPECT_EQ(Examine({TopologyKind::kMatrix, 2, 1, {1, 0, 0, 1}}).contraction, 1);
}

TEST(MixingTest, BuiltInOnesAreConnected) {
  for (const Topology& topology : AllValid())
    EXPECT_TRUE(Examine(topology).is_connected) << NameIn(topology);
}

TEST(MixingTest, AUsersMatrixIsExamined) {
  // 2 hears of nobody; all hear of it.
  const MixingReport one = Examine({TopologyKind::kMatrix, 3, 1, {.5, 0, .5, 0, .5, .5, 0, 0, 1}});
  EXPECT_FALSE(one.is_connected);
  EXPECT_EQ(one.unheard, 0);
  EXPECT_EQ(one.unreached, 1);
  EXPECT_NEAR(one.column_error, 1, 1e-12);
  EXPECT_EQ(one.column, 2);
  const MixingReport two = Examine({TopologyKind::kMatrix, 2, 1, {.75, .25, .25, .75}});
  EXPECT_TRUE(two.is_connected);
  EXPECT_NEAR(two.contraction, .5, 1e-9);
  EXPECT_NEAR(two.gap(), .5, 1e-9);
  EXPECT_EQ(two.column_error, 0);
}

TEST(TopologyTest, BadOnesAreRefusedWithTheReason) {
  const auto message = [](const Topology& topology) { return Check(topology).message(); };
  EXPECT_EQ(message({TopologyKind::kRing, 0, 1, {}}), "a topology has 1 rank or more, not 0");
  EXPECT_EQ(message({TopologyKind::kBipartite, 5, 1, {}}),
            "topology bipartite pairs each even rank with an odd one, so it needs an even number "
            "of ranks, not 5; matching and full take any");
  EXPECT_EQ(message({TopologyKind::kMatrix, 2, 1, {.5, .5, .5, .25}}),
            "row 1 of the topology's matrix sums to 0.75, not to 1");
  EXPECT_EQ(message({TopologyKind::kMatrix, 2, 1, {1, 0, .5, .500002}}),
            "row 1 of the topology's matrix sums to 1.000002, not to 1");
  EXPECT_TRUE(Check({TopologyKind::kMatrix, 3, 1, std::vector<double>(9, 1.F / 3)}).ok());
  EXPECT_EQ(message({TopologyKind::kMatrix, 2, 1, {1.5, -.5, .5, .5}}),
            "weight [0][1] of the topology's matrix is -0.5: weights are 0 or more");
  EXPECT_EQ(message({TopologyKind::kMatrix, 2, 1, {1}}),
            "the matrix of a topology of 2 ranks has 4 weights, not 1");
  EXPECT_EQ(CheckPairs({TopologyKind::kRing, 5, 1, {}}).message(),
            "a ring of 5 ranks does not fall into pairs: it needs an even number; matching and "
            "full take any");
  EXPECT_EQ(CheckPairs({TopologyKind::kOnePeer, 4, 1, {}}).message(),
            "topology one_peer gives no pairs; ring, bipartite, full and matching do");
  TopologyKind kind{};
  EXPECT_EQ(KindOf("bipartit", &kind).message(),
            "there is no topology 'bipartit', but ring, exponential, one_peer, bipartite, full, "
            "matching (did you mean bipartite?)");
  ASSERT_TRUE(KindOf("matching", &kind).ok());
  EXPECT_EQ(kind, TopologyKind::kMatching);
}

}  // namespace
}  // namespace covey
