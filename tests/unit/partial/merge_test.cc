// Goal: with nobody late the models of P ranks become the mean of all as groups.h says, for any P
// and S, in the engine itself; in groups of all each version is that mean; whoever is late, a
// constant stays and no model leaves the range of all (T2, T3, T11).
// Method: ranks in turn on one thread: those that are in time publish, one makes the version, they
// merge; then the others do.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/base/rng.h"
#include "core/partial/rounds.h"
#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261121;
constexpr Time kMaxWait = kSecond;
constexpr RoundSpan kSpans[1] = {{DType::kF64, 3}};

class Ranks {
 public:
  // `needed`: ranks that a version waits for; 0: all.
  Ranks(int32_t size, int32_t group_size, int32_t needed = 0, uint64_t sync_every = 1000)
      : network_({.size = size, .seed = 1, .region_bytes = 1 << 20}),
        memory_({.size = size,
                 .log = 2,
                 .hypers = 1,
                 .models = {.group_size = group_size, .sync_every = sync_every}},
                RoundLayout(kSpans, 64)) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < size; ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
    }
    memory_.Map(std::move(blocks));
    for (int32_t r = 0; r < size; ++r)
      ranks_.push_back(std::make_unique<Rounds>(Rounds::Options{.self = r,
                                                                .admission = {.count = needed},
                                                                .max_wait = kMaxWait,
                                                                .kernels = &ScalarKernels()},
                                                &memory_, network_.transport(Rank{r}).words()));
  }

  // A step of all with these models, which become what they are then. Not empty: who is late.
  void Step(std::vector<double>* models, const std::vector<bool>& late = {}) {
    std::vector<size_t> first, last;
    for (size_t r = 0; r < ranks_.size(); ++r)
      (late.empty() || !late[r] ? first : last).push_back(r);
    uint64_t step = 0;
    for (const size_t r : first) step = Publish(r, *models);
    Make(first[0], step);
    for (const size_t r : first) EXPECT_FALSE(Merge(r, step, models));
    for (const size_t r : last) {
      EXPECT_EQ(Publish(r, *models), step);
      EXPECT_TRUE(Merge(r, step, models));
    }
  }

  // `steps`: that the rank has done.
  uint64_t Publish(size_t rank, const std::vector<double>& models, double steps = 0) {
    reinterpret_cast<double*>(ranks_[rank]->open())[1] = models[rank];
    return ranks_[rank]->Publish({&steps, 1});
  }
  void Finish(size_t rank) { ranks_[rank]->epoch_end().Finish(); }
  bool GoOnWithout(size_t rank) { return ranks_[rank]->epoch_end().GoOnWithout(); }
  uint64_t dropped(size_t rank) { return ranks_[rank]->epoch_end().dropped(); }
  // The rank works for the version until it is made.
  void Make(size_t rank, uint64_t version) {
    Rounds& one = *ranks_[rank];
    for (bool moved = true; one.executed() < version && moved;) one.Advance(0, &moved);
  }
  // The same until others were missing for max_wait.
  void MakeAlone(size_t rank, uint64_t version) {
    bool moved;
    for (Time now = 0; ranks_[rank]->executed() < version && now < 9 * kMaxWait;
         now += kMaxWait / 8)
      ranks_[rank]->Advance(now, &moved);
  }
  // Whether it was late.
  bool Merge(size_t rank, uint64_t version, std::vector<double>* models, Merged* merged = nullptr) {
    double model[3];
    void* to[] = {model};
    Merged own;
    if (merged == nullptr) merged = &own;
    ranks_[rank]->Merge(version, to, merged);
    (*models)[rank] = model[1];
    return merged->late;
  }
  // The same where the next model of the rank goes.
  double MergeInPlace(size_t rank, uint64_t version) {
    std::byte* open = ranks_[rank]->open();
    void* to[] = {open};
    Merged merged;
    ranks_[rank]->Merge(version, to, &merged);
    return reinterpret_cast<double*>(open)[1];
  }

 private:
  InprocNetwork network_;
  RoundMemory memory_;
  std::vector<std::unique_ptr<Rounds>> ranks_;
};

std::vector<double> Drawn(int32_t size, Rng* rng) {
  std::vector<double> models;
  for (int32_t i = 0; i < size; ++i) models.push_back(static_cast<double>(rng->Below(1000)));
  return models;
}

// Versions begin at 1, which for powers of two is as good as any, and for others not: there the
// next multiple of the number of digits is waited for.
TEST(MergeTest, BecomeTheMeanOfAllWhereTheSizesAllowIt) {
  Rng rng(kSeed);
  constexpr int32_t kSizes[][3] = {{2, 2, 1},  {4, 2, 2},  {8, 2, 3},  {8, 4, 2},  {16, 4, 2},
                                   {32, 8, 2}, {64, 8, 2}, {64, 4, 3}, {9, 3, 4},  {25, 5, 4},
                                   {27, 3, 6}, {36, 6, 4}, {49, 7, 4}, {13, 13, 1}};
  for (const auto& [size, group_size, versions] : kSizes) {
    Ranks ranks(size, group_size);
    std::vector<double> models = Drawn(size, &rng);
    double mean = 0;
    for (const double model : models) mean += model / size;
    for (int32_t i = 0; i < versions; ++i) ranks.Step(&models);
    for (const double model : models)
      EXPECT_NEAR(model, mean, 1e-9) << size << " in groups of " << group_size;
  }
}

TEST(MergeTest, KeepTheirMeanAndComeCloser) {
  Rng rng(kSeed);
  for (int32_t size = 2; size <= 64; size += size < 16 ? 1 : 7) {
    const auto group_size = static_cast<int32_t>(2 + rng.Below(static_cast<uint64_t>(size - 1)));
    Ranks ranks(size, group_size);
    std::vector<double> models = Drawn(size, &rng);
    double mean = 0;
    for (const double model : models) mean += model / size;
    const auto [low, high] = std::minmax_element(models.begin(), models.end());
    const double before = *high - *low;
    for (int i = 0; i < 40; ++i) ranks.Step(&models);
    double after = 0;
    for (const double model : models) after += model / size;
    EXPECT_NEAR(after, mean, 1e-9) << size << " in groups of " << group_size;
    const auto [lowest, highest] = std::minmax_element(models.begin(), models.end());
    EXPECT_LE(*highest - *lowest, 0.1 * before) << size << " in groups of " << group_size;
  }
}

TEST(MergeTest, AreTheMeanOfAllInGroupsOfAll) {
  Rng rng(kSeed);
  for (int32_t size = 1; size <= 64; ++size) {
    Ranks ranks(size, size);
    std::vector<double> models = Drawn(size, &rng);
    double sum = 0;
    for (const double model : models) sum += model;
    ranks.Step(&models);
    for (const double model : models) EXPECT_EQ(model, sum / size) << size;
    std::fill(models.begin(), models.end(), 512.0);
    ranks.Step(&models);
    for (const double model : models) EXPECT_NEAR(model, 512.0, 1e-9) << size;
  }
}

// T3: what a rank has afterwards is a mean of what ranks have had.
TEST(MergeTest, WhoeverIsLateAConstantStaysAndNobodyLeavesTheRange) {
  Rng rng(kSeed);
  for (int32_t size = 1; size <= 64; ++size) {
    const auto members = static_cast<uint64_t>(size);
    const auto group_size = static_cast<int32_t>(1 + rng.Below(members));
    Ranks constant(size, group_size, 1), drawn(size, group_size, 1);
    std::vector<double> equal(members, 512.0), models = Drawn(size, &rng);
    const auto [at_low, at_high] = std::minmax_element(models.begin(), models.end());
    const double low = *at_low, high = *at_high;
    for (int i = 0; i < 20; ++i) {
      std::vector<bool> late;
      for (int32_t r = 0; r < size; ++r) late.push_back(rng.Percent(40));
      late[rng.Below(members)] = false;
      constant.Step(&equal, late);
      drawn.Step(&models, late);
      for (const double model : equal) ASSERT_NEAR(model, 512.0, 1e-9) << size;
      for (const double model : models) {
        ASSERT_GE(model, low - 1e-9) << size;
        ASSERT_LE(model, high + 1e-9) << size;
      }
    }
  }
}

// Rank 0 has published nothing when it is in finish(), and the version of all before has passed the
// model of rank 1 by.
TEST(MergeTest, AVersionThatContainsNoModelLeavesEachRankItsOwn) {
  Ranks ranks(2, 2, 0, 1);
  std::vector<double> models{100, 300};
  ranks.Publish(1, models);
  ranks.MakeAlone(1, 1);
  ranks.Finish(0);
  ranks.MakeAlone(0, 2);
  Merged merged;
  ranks.Merge(1, 1, &models, &merged);
  EXPECT_EQ(merged.version, 2u) << "the log has no other";
  EXPECT_EQ(merged.record.header.leader, -1) << "it contains no model";
  EXPECT_EQ(merged.count, 0);
  EXPECT_FALSE(merged.kept);
  EXPECT_EQ(models[1], 300);
}

// Rank 2 has copied version 1 early to where its next model lies when that step is dropped.
TEST(MergeTest, ADroppedStepForgetsEarlyCopies) {
  Ranks ranks(3, 3);
  std::vector<double> models{1, 2, 6};
  for (const size_t r : {0, 1, 2}) ranks.Publish(r, models);
  ranks.Make(2, 1);
  for (const size_t r : {0, 1}) ranks.Finish(r);
  ranks.MakeAlone(0, 2);
  ASSERT_TRUE(ranks.GoOnWithout(0));
  models[2] = 700;
  ranks.Publish(2, models);
  ASSERT_EQ(ranks.dropped(2), 1u);
  EXPECT_EQ(ranks.MergeInPlace(2, 1), 3);
}

TEST(MergeTest, TheRecordSaysTheMostStepsThatARankInItHasDone) {
  Ranks ranks(3, 3);
  std::vector<double> models{1, 2, 3};
  for (const size_t r : {0, 1, 2}) ranks.Publish(r, models, r == 1 ? 7 : 5);
  ranks.Make(0, 1);
  for (const size_t r : {0, 1, 2}) {
    Merged merged;
    ranks.Merge(r, 1, &models, &merged);
    EXPECT_EQ(merged.record.header.leader, 0);
    EXPECT_EQ(merged.record.hypers, std::vector<double>{7});
  }
}

}  // namespace
}  // namespace covey
