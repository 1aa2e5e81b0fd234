// Goal: partial-W12: the groups of every version divide the members, for any sizes; averaging in
// them moves no mean and comes to the mean of all: exactly where it can. Method: all sizes to 1024
// for what is counted; models as vectors of numbers for what is averaged.
#include "core/partial/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

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
// Hosts of so many members, one after the other, or dealt out.
std::vector<int32_t> HostsOf(const std::vector<int32_t>& counts, bool dealt) {
  std::vector<int32_t> hosts;
  const int32_t most = *std::max_element(counts.begin(), counts.end());
  for (size_t h = 0; h < counts.size() && !dealt; ++h)
    hosts.insert(hosts.end(), static_cast<size_t>(counts[h]), static_cast<int32_t>(h));
  for (int32_t turn = 0; turn < most && dealt; ++turn)
    for (size_t h = 0; h < counts.size(); ++h)
      if (turn < counts[h]) hosts.push_back(static_cast<int32_t>(h));
  return hosts;
}

// Rules for even and uneven hosts.
std::vector<ModelRule> AllDivided() {
  std::vector<ModelRule> all;
  const std::vector<std::vector<int32_t>> counts_of{
      {2, 2}, {3, 1}, {4, 4}, {2, 2, 2}, {1, 2, 3, 4}, {5, 3}, {1, 1, 4}, {8, 8, 8, 8}, {7, 9, 4}};
  for (const std::vector<int32_t>& counts : counts_of)
    for (const bool dealt : {false, true})
      for (const int32_t group_size : {1, 2, 3, 4, 7, 16})
        for (const int64_t every : {2, 3, 5}) {
          const std::vector<int32_t> hosts = HostsOf(counts, dealt);
          if (group_size > static_cast<int32_t>(hosts.size())) continue;
          all.push_back({.group_size = group_size, .hosts = hosts, .cross_every = every});
        }
  return all;
}

std::string NameIn(const ModelRule& rule) {
  std::string name = "groups of " + std::to_string(rule.group_size) + " over";
  for (const int32_t host : rule.hosts) name += " " + std::to_string(host);
  return name + ", every " + std::to_string(rule.cross_every);
}

// A group has members of one host, and in every k-th version members of different hosts.
TEST(GroupsTest, AreWithinHostsAndBetweenThemInEveryKth) {
  for (const ModelRule& rule : AllDivided()) {
    SCOPED_TRACE(NameIn(rule));
    const auto size = static_cast<int32_t>(rule.hosts.size());
    const auto every = static_cast<uint64_t>(rule.cross_every);
    bool has_crossed = false, has_averaged_within = false;
    for (uint64_t version = 1; version <= 12 * every; ++version) {
      const std::vector<int32_t> groups = GroupsOf(rule, size, version);
      const bool is_between = (version + 1) % every == 0;
      int32_t next = 0;
      for (const int32_t group : groups) {
        ASSERT_LE(group, next) << "numbers in the order of the first members";
        next = std::max(next, group + 1);
      }
      ASSERT_LE(next, MostGroups(rule, size));
      for (int32_t group = 0; group < next; ++group) {
        const std::vector<int32_t> members = MembersOf(groups, group);
        ASSERT_LE(static_cast<int32_t>(members.size()), rule.group_size);
        for (size_t i = 1; i < members.size(); ++i)
          for (size_t j = 0; j < i; ++j) {
            const bool share = rule.hosts[static_cast<size_t>(members[i])] ==
                               rule.hosts[static_cast<size_t>(members[j])];
            ASSERT_NE(share, is_between) << "version " << version;
          }
        has_crossed |= is_between && members.size() > 1;
        has_averaged_within |= !is_between && members.size() > 1;
      }
    }
    EXPECT_EQ(has_crossed, rule.group_size > 1);
    EXPECT_EQ(has_averaged_within, rule.group_size > 1);
  }
}

TEST(GroupsTest, OfHostsMoveNoMeanAndComeToTheMeanOfAll) {
  Rng rng(kSeed);
  for (const ModelRule& rule : AllDivided()) {
    if (rule.group_size == 1) continue;
    SCOPED_TRACE(NameIn(rule));
    const auto size = static_cast<int32_t>(rule.hosts.size());
    std::vector<double> models = Drawn(size, &rng);
    const double mean = MeanOf(models), before = SpreadOf(models);
    for (uint64_t version = 1; version <= 400; ++version)
      models = Averaged(models, GroupsOf(rule, size, version));
    EXPECT_NEAR(MeanOf(models), mean, 1e-9);
    EXPECT_LE(SpreadOf(models), 1e-3 * before);
  }
}

// 2^a members on each of 2^b hosts: all are the mean of all after the versions that bring it within
// a host, and those that bring it between hosts, in whatever order these come.
TEST(GroupsTest, OfEvenHostsComeToTheMeanExactly) {
  Rng rng(kSeed);
  for (const auto& [hosts, beside, group_size] : std::vector<std::array<int32_t, 3>>{
           {2, 2, 2}, {4, 2, 2}, {2, 8, 2}, {4, 4, 4}, {8, 8, 2}, {8, 8, 8}, {2, 4, 4}})
    for (const int64_t every : {2, 3, 5}) {
      const ModelRule rule{
          .group_size = group_size,
          .hosts = HostsOf(std::vector<int32_t>(static_cast<size_t>(hosts), beside), false),
          .cross_every = every};
      SCOPED_TRACE(NameIn(rule));
      std::vector<double> models = Drawn(hosts * beside, &rng);
      const double mean = MeanOf(models);
      const uint64_t within = static_cast<uint64_t>(DigitsOf(beside, group_size));
      const uint64_t between = static_cast<uint64_t>(DigitsOf(hosts, group_size));
      for (uint64_t version = 0; version < static_cast<uint64_t>(every) * std::max(within, between);
           ++version)
        models = Averaged(models, GroupsOf(rule, hosts * beside, version));
      for (const double model : models) EXPECT_NEAR(model, mean, 1e-9);
    }
}

// Also where no two members share a host, or all do.
TEST(GroupsTest, HostsMakeNoDifferenceUnlessTold) {
  const std::vector<std::vector<int32_t>> all{{}, {0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5}};
  for (const std::vector<int32_t>& hosts : all)
    for (uint64_t version = 0; version < 20; ++version)
      EXPECT_EQ(GroupsOf({.group_size = 2, .hosts = hosts, .cross_every = 3}, 6, version),
                GroupsOf(6, 2, version));
  const ModelRule one{.group_size = 2, .hosts = {0, 0, 0, 1, 1, 1}};
  for (uint64_t version = 0; version < 20; ++version)
    EXPECT_EQ(GroupsOf(one, 6, version), GroupsOf(6, 2, version));
  EXPECT_EQ(MostGroups(one, 6), MostGroups(6, 2));
}

TEST(GroupsTest, OfHostsAreThoseOfTheWorkedExample) {
  const ModelRule rule{.group_size = 2, .hosts = {0, 0, 1, 1}, .cross_every = 3};
  using V = std::vector<int32_t>;
  for (const uint64_t version : {1, 3, 4, 6})
    EXPECT_EQ(GroupsOf(rule, 4, version), (V{0, 0, 1, 1}));
  for (const uint64_t version : {2, 5}) EXPECT_EQ(GroupsOf(rule, 4, version), (V{0, 1, 0, 1}));
}

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
