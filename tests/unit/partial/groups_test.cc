// Goal: partial-W12: the groups of every version divide the members, for any sizes; averaging in
// them moves no mean and comes to the mean of all: exactly where it can. Method: all sizes to 1024
// for what is counted; models as vectors of numbers for what is averaged.
#include "core/partial/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261121;

int32_t CountOf(const std::vector<int32_t>& groups) {
  return 1 + *std::max_element(groups.begin(), groups.end());
}

std::vector<int32_t> MembersOf(const std::vector<int32_t>& groups, int32_t group) {
  std::vector<int32_t> members;
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i] == group) members.push_back(static_cast<int32_t>(i));
  return members;
}

int32_t DigitsOf(int32_t size, int32_t base) {
  int32_t digits = 1;
  for (int64_t reach = base; reach < size; reach *= base) ++digits;
  return digits;
}

std::vector<double> Averaged(const std::vector<double>& models,
                             const std::vector<int32_t>& groups) {
  std::vector<double> sums(models.size()), counts(models.size()), after;
  for (size_t i = 0; i < models.size(); ++i) {
    sums[static_cast<size_t>(groups[i])] += models[i];
    counts[static_cast<size_t>(groups[i])] += 1;
  }
  for (const int32_t group : groups)
    after.push_back(sums[static_cast<size_t>(group)] / counts[static_cast<size_t>(group)]);
  return after;
}

double MeanOf(const std::vector<double>& models) {
  double sum = 0;
  for (const double model : models) sum += model;
  return sum / static_cast<double>(models.size());
}

double SpreadOf(const std::vector<double>& models) {
  double sum = 0;
  for (const double model : models) sum += (model - MeanOf(models)) * (model - MeanOf(models));
  return sum;
}

std::vector<double> Drawn(int32_t size, Rng* rng) {
  std::vector<double> models;
  for (int32_t i = 0; i < size; ++i) models.push_back(static_cast<double>(rng->Below(1000)));
  return models;
}

// T8. That all members of a group agree on it is that there is one function; what can go wrong is
// who is in it.
TEST(GroupsTest, DivideTheMembersWhateverTheSizes) {
  Rng rng(kSeed);
  for (int32_t size = 1; size <= 1024; ++size) {
    const int32_t log = std::bit_width(static_cast<uint32_t>(size));
    for (const int32_t group_size :
         {1, 2, 3, static_cast<int32_t>(std::sqrt(size)),
          1 + static_cast<int32_t>(rng.Below(static_cast<uint64_t>(size))), size}) {
      if (group_size > size) continue;
      const int32_t most = MostGroups(size, group_size);
      for (uint64_t version = 0; version < static_cast<uint64_t>(4 * log); ++version) {
        const std::vector<int32_t> groups = GroupsOf(size, group_size, version);
        ASSERT_EQ(groups.size(), static_cast<size_t>(size));
        std::vector<int32_t> count(static_cast<size_t>(size));
        int32_t next = 0;
        for (const int32_t group : groups) {
          ASSERT_LE(group, next) << "numbers in the order of the first members";
          next = std::max(next, group + 1);
          ASSERT_LE(++count[static_cast<size_t>(group)], group_size) << size << " " << group_size;
        }
        ASSERT_LE(next, most) << size << " in groups of " << group_size << " version " << version;
      }
    }
  }
}

TEST(GroupsTest, ArePowersOfTwoWherePossible) {
  for (int32_t size = 1; size <= 1024; size *= 2)
    for (int32_t group_size = 1; group_size <= size; group_size *= 2) {
      EXPECT_EQ(MostGroups(size, group_size), size / group_size);
      for (uint64_t version = 0; version < 40; ++version)
        EXPECT_EQ(CountOf(GroupsOf(size, group_size, version)), size / group_size);
    }
}

TEST(GroupsTest, AreThoseOfTheWorkedExamples) {
  using V = std::vector<int32_t>;
  EXPECT_EQ(GroupsOf(8, 4, 0), (V{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(GroupsOf(8, 4, 1), (V{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(GroupsOf(8, 4, 2), (V{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(GroupsOf(5, 2, 0), (V{0, 0, 1, 1, 2}));
  EXPECT_EQ(GroupsOf(5, 2, 1), (V{0, 1, 0, 1, 2}));
  EXPECT_EQ(GroupsOf(5, 2, 2), (V{0, 1, 2, 3, 0}));
  EXPECT_EQ(GroupsOf(5, 2, 3), (V{0, 1, 1, 2, 0}));
  EXPECT_EQ(MembersOf(GroupsOf(64, 8, 1), 0), (V{0, 8, 16, 24, 32, 40, 48, 56}));
}

// Nobody late: powers of two need ceil(log P / log S) versions, wherever they begin.
TEST(GroupsTest, AveragePowersOfTwoToTheMeanOfAll) {
  Rng rng(kSeed);
  for (int32_t size = 2; size <= 1024; size *= 2)
    for (int32_t group_size = 2; group_size <= size; group_size *= 2)
      for (uint64_t begin = 0; begin < 8; ++begin) {
        std::vector<double> models = Drawn(size, &rng);
        const double mean = MeanOf(models);
        const int32_t log = std::countr_zero(static_cast<uint32_t>(size));
        const int32_t log_group = std::countr_zero(static_cast<uint32_t>(group_size));
        for (int32_t i = 0; i < (log + log_group - 1) / log_group; ++i)
          models = Averaged(models, GroupsOf(size, group_size, begin + static_cast<uint64_t>(i)));
        for (const double model : models)
          ASSERT_NEAR(model, mean, 1e-9) << size << " in groups of " << group_size;
      }
}

TEST(GroupsTest, AveragePowersOfTheGroupSizeToTheMeanOfAll) {
  Rng rng(kSeed);
  for (int32_t group_size = 3; group_size <= 31; ++group_size)
    for (int64_t size = group_size; size <= 1024; size *= group_size)
      for (uint64_t pass = 0; pass < 3; ++pass) {
        const auto members = static_cast<int32_t>(size);
        const auto digits = static_cast<uint64_t>(DigitsOf(members, group_size));
        std::vector<double> models = Drawn(members, &rng);
        const double mean = MeanOf(models);
        for (uint64_t i = 0; i < digits; ++i)
          models = Averaged(models, GroupsOf(members, group_size, pass * digits + i));
        for (const double model : models)
          ASSERT_NEAR(model, mean, 1e-9) << size << " in groups of " << group_size;
      }
}

// Elsewhere they come closer, and the mean stays: rows and columns of the averaging sum to 1.
TEST(GroupsTest, MoveNoMeanAndBringModelsCloser) {
  Rng rng(kSeed);
  for (int32_t size = 2; size <= 64; ++size)
    for (int32_t group_size = 2; group_size <= size; ++group_size) {
      std::vector<double> models = Drawn(size, &rng);
      const double mean = MeanOf(models);
      const double before = SpreadOf(models);
      const auto digits = static_cast<uint64_t>(DigitsOf(size, group_size));
      for (uint64_t version = 0; version < 8 * digits; ++version) {
        const double spread = SpreadOf(models);
        models = Averaged(models, GroupsOf(size, group_size, version));
        ASSERT_LE(SpreadOf(models), spread + 1e-6);
        ASSERT_NEAR(MeanOf(models), mean, 1e-9);
      }
      EXPECT_LT(SpreadOf(models), 0.05 * before + 1e-6)
          << size << " in groups of " << group_size << ", seed " << kSeed;
    }
}

// A model is kept out once a version of all has passed it by: it is at most tau - 1 versions old.
TEST(ModelRuleTest, SaysWhatIsTooOld) {
  const ModelRule rule{.group_size = 2, .sync_every = 10};
  EXPECT_TRUE(rule.IsSync(10));
  EXPECT_FALSE(rule.IsSync(11));
  EXPECT_FALSE(rule.IsTooOld(10, 19));
  EXPECT_TRUE(rule.IsTooOld(10, 20));
  EXPECT_FALSE(ModelRule{}.on());
}

// From where rounds may end every version is of all, and supersedes what is older.
TEST(ModelRuleTest, EveryVersionIsOfAllOnceRoundsMayEnd) {
  const ModelRule rule{.group_size = 2, .sync_every = 10, .ending = 14};
  EXPECT_TRUE(rule.IsSync(10));
  EXPECT_FALSE(rule.IsSync(13));
  EXPECT_FALSE(rule.HasSuperseded(12, 13));
  for (uint64_t version : {14, 15, 20}) {
    EXPECT_TRUE(rule.IsSync(version));
    EXPECT_TRUE(rule.HasSuperseded(version - 1, version));
    EXPECT_FALSE(rule.HasSuperseded(version, version));
  }
}

}  // namespace
}  // namespace covey
