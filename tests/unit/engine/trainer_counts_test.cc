#include "core/engine/trainer_counts.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

TEST(TrainerCountsTest, ContributionsAreCountedByHowLateTheyAre) {
  TrainerCounts counts(3);
  counts.AddVersion(
      20, {{.first = 20, .last = 20, .count = 1}, {}, {.first = 1, .last = 20, .count = 20}});
  EXPECT_EQ(counts.versions, 1u);
  EXPECT_EQ(counts.fresh, (std::vector<uint64_t>{1, 0, 1}));
  EXPECT_EQ(counts.staleness, (std::array<uint64_t, 7>{2, 1, 1, 2, 4, 8, 3}));
}

TEST(TrainerCountsTest, PartsAreAddedUp) {
  TrainerCounts one(2), other(2);
  one.AddVersion(1, {{.first = 1, .last = 1, .count = 1}, {}});
  other.AddVersion(7, {{}, {.first = 5, .last = 5, .count = 1}});
  other.overdue[1] = 3;
  one.begun = 1;
  one.memory = {.exchange = 5, .rounds = 4};
  other.memory.rounds = 8;
  one.published = 3;
  other.published = 4;
  other.begun = other.met = 2;
  one += other;
  EXPECT_EQ(one.Json("\"steps\":4"),
            R"({"steps":4,"versions":2,"fresh":[1,0],"overdue":[0,3],"missing":[0,0],)"
            R"("staleness":[1,0,1,0,0,0,0],)"
            R"("memory_bytes":{"exchange":5,"rounds":12,"pairs":0,"arrays":0,"codec":0},)"
            R"("published":7,"snapshots":0,"made":0,"copied":0,"begun":3,"met":2})");
}

}  // namespace
}  // namespace covey
