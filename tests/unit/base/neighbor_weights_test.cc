// Peer tables hold what was set, for groups of any size; and conflicts are found as two nested
// loops over plain matrices find them.
#include "core/base/neighbor_weights.h"

#include <gtest/gtest.h>

#include "core/base/channel.h"
#include "core/base/rng.h"

namespace covey {
namespace {

constexpr size_t kSizes[] = {1, 2, 3, 63, 64, 65, 130};

TEST(NeighborWeightsTest, ATableHoldsWhatWasSet) {
  for (const size_t n : kSizes) {
    std::vector<uint64_t> table = NewPeerTable(n, n / 2);
    ASSERT_EQ(table.size(), TableWords(n));
    for (size_t j = 0; j < n; ++j) {
      EXPECT_EQ(WeightOf(table, j), j == n / 2 ? 1 : 0);
      EXPECT_FALSE(SendsTo(table, n, j));
    }
    SetWeight(n - 1, -0.1, &table);
    SetReceiver(n, n - 1, &table);
    EXPECT_EQ(WeightOf(table, n - 1), -0.1);
    for (size_t j = 0; j < n; ++j) EXPECT_EQ(SendsTo(table, n, j), j == n - 1);
  }
}

TEST(NeighborWeightsTest, ConflictsAreFoundInTheOrderOfReceivers) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    const size_t n = kSizes[rng.Below(5)];
    std::vector<std::vector<uint64_t>> tables;
    for (size_t i = 0; i < n; ++i) tables.push_back(NewPeerTable(n, i));
    for (size_t i = 0; i < n; ++i) {
      if (rng.Percent(10)) SetReceiver(n, i, &tables[i]);  // sends to whoever takes
      for (size_t j = 0; j < n; ++j) {
        if (i == j || !rng.Percent(20)) continue;
        SetWeight(j, 0.5, &tables[i]);
        if (!rng.Percent(2)) SetReceiver(n, i, &tables[j]);
      }
    }
    PeerConflict wanted;
    bool has_conflict = false;
    for (size_t i = 0; i < n && !has_conflict; ++i)
      for (size_t j = 0; j < n && !has_conflict; ++j) {
        const bool takes = WeightOf(tables[i], j) != 0;
        has_conflict = i != j && !SendsTo(tables[j], n, j) && takes != SendsTo(tables[j], n, i);
        wanted = {.receiver = i, .sender = j, .takes = takes};
      }
    const std::vector<PeerTable> views(tables.begin(), tables.end());
    PeerConflict found;
    ASSERT_EQ(FindConflict(views, &found), has_conflict) << "seed " << seed;
    if (!has_conflict) continue;
    EXPECT_EQ(found.receiver, wanted.receiver) << "seed " << seed;
    EXPECT_EQ(found.sender, wanted.sender) << "seed " << seed;
    EXPECT_EQ(found.takes, wanted.takes) << "seed " << seed;
  }
}

TEST(NeighborWeightsTest, AConflictIsSaidWithRanks) {
  const int32_t ranks[] = {3, 7};
  EXPECT_EQ(Describe({.receiver = 0, .sender = 1, .takes = true}, ranks),
            "rank 3 takes from rank 7, which does not send to rank 3");
  EXPECT_EQ(Describe({.receiver = 0, .sender = 1, .takes = false}, ranks),
            "rank 7 sends to rank 3, which does not take from rank 7");
}

}  // namespace
}  // namespace covey
