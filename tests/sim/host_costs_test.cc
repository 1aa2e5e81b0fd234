// Goal: what a version between P hosts costs where no rank is late. Small messages are 10 a host at
// most, of the kinds that a version needs, whenever ranks come; a chain of 6 commits it everywhere;
// a rank, the leader too, sends and takes 2.2 sums at most, and 1.2 times what a mean rank does. In
// the small messages there is a bit for each pair of hosts, and no more that grows with it.
// Method: replicas of one rank on each host count what they write (simulator/host_costs.h), for
// powers of two and other numbers. The table is that of core/replicated/README.md; all of it, and
// the bytes of more than 64 hosts: TEST_SLOW=1 (tools/test --slow).
#include "tests/sim/simulator/host_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace covey {
namespace {

using Kind = ReplicaMessage::Kind;

constexpr double kGradient = static_cast<double>(kGradientBytes);
constexpr double kSmallBytes = 700;  // of the small messages to and from a host, of any number
constexpr int32_t kMostHosts = 1024;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int32_t kQuickHosts = 128;
#else
constexpr int32_t kQuickHosts = kMostHosts;
#endif

bool IsSlow() { return std::getenv("TEST_SLOW") != nullptr; }

double MostOf(const std::vector<double>& bytes) {
  return *std::max_element(bytes.begin(), bytes.end());
}

double MeanOf(const std::vector<double>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size());
}

// What each follower exchanges with the leader for a version.
void ExpectFewMessages(const HostCosts& costs, int32_t hosts) {
  ASSERT_EQ(costs.failure, "");
  const double followers = hosts - 1;
  EXPECT_LE(costs.SmallMessages(), 10.0 * hosts);
  for (const Kind once : {Kind::kContribution, Kind::kContributionAck, Kind::kPropose})
    EXPECT_EQ(costs.Of(once), followers);
  EXPECT_LE(costs.Of(Kind::kHeartbeat), 2 * followers);
  double others = costs.SmallMessages();
  for (const Kind kind : {Kind::kContribution, Kind::kContributionAck, Kind::kPropose,
                          Kind::kHeartbeat, Kind::kAppendResponse, Kind::kAppendEntry})
    others -= costs.Of(kind);
  EXPECT_EQ(others, 0) << "votes, snapshots, fetches, leaves";
  EXPECT_LE(costs.depth, 6u);
}

// Few shards: a small message does not know how many there are.
TEST(HostCostsTest, SmallMessagesAreLinearAndAChainIsShort) {
  for (int32_t hosts = 2; hosts <= kQuickHosts; hosts *= 2) {
    SCOPED_TRACE(std::to_string(hosts) + " hosts");
    const HostCosts costs = CountHostCosts({.hosts = hosts, .shards = 8});
    ExpectFewMessages(costs, hosts);
    EXPECT_EQ(costs.Of(Kind::kPiece), 2 * 8 * (hosts - 1));
  }
}

TEST(HostCostsTest, RanksMayComeInAnyOrder) {
  for (const int32_t hosts : {2, 3, 5, 7, 16, 31, 64})
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(std::to_string(hosts) + " hosts, seed " + std::to_string(seed));
      ExpectFewMessages(
          CountHostCosts({.hosts = hosts, .shards = 8, .versions = 4, .spread = 20, .seed = seed}),
          hosts);
    }
}

TEST(HostCostsTest, AWitnessHearsNothingAndAChainIsAsShort) {
  for (const int32_t hosts : {2, 4, 16, 64})
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(std::to_string(hosts) + " hosts, seed " + std::to_string(seed));
      ExpectFewMessages(
          CountHostCosts(
              {.hosts = hosts, .shards = 8, .spread = 20, .seed = seed, .has_witness = true}),
          hosts);
    }
}

TEST(HostCostsTest, NoRankCarriesMoreThanTwoSums) {
  std::vector<int32_t> all = {2, 3, 4, 6, 8, 16, 32, 48, 64};
  if (IsSlow()) all.insert(all.end(), {128, 256, 512, 1000, kMostHosts});
  std::printf("| P | small messages | their bytes | pieces | depth | mean sent | leader sends |\n");
  for (const int32_t hosts : all) {
    SCOPED_TRACE(std::to_string(hosts) + " hosts");
    const HostCosts costs = CountHostCosts({.hosts = hosts});
    ExpectFewMessages(costs, hosts);
    EXPECT_EQ(costs.Of(Kind::kPiece), 2.0 * static_cast<double>(ShardsOf(hosts)) * (hosts - 1));
    EXPECT_LE(costs.SmallBytes(), kSmallBytes * hosts + hosts * hosts / 8.0);
    const double mean = MeanOf(costs.sent);
    for (const std::vector<double>& bytes : {costs.sent, costs.taken}) {
      EXPECT_LE(MostOf(bytes), 2.2 * kGradient);
      EXPECT_LE(MostOf(bytes), 1.2 * mean);
    }
    // The leader is rank 0.
    std::printf("| %d | %.0f | %.0f kB | %.0f | %d | %.2f g | %.2f g |\n", hosts,
                costs.SmallMessages(), costs.SmallBytes() / 1e3, costs.Of(Kind::kPiece),
                static_cast<int>(costs.depth), mean / kGradient, costs.sent[0] / kGradient);
  }
}

}  // namespace
}  // namespace covey
