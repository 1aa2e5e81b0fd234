// Goal: with nobody late the models of P ranks become the mean of all as groups.h says, for any P
// and S, in the engine itself; in groups of all each version is that mean; a constant stays.
// Method: ranks in turn on one thread: all publish, one makes the version, all merge.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/base/rng.h"
#include "core/round/rounds.h"
#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261121;
constexpr RoundSpan kSpans[1] = {{DType::kF64, 3}};

class Ranks {
 public:
  Ranks(int32_t size, int32_t group_size)
      : network_({.size = size, .seed = 1, .region_bytes = 1 << 20}),
        memory_({.size = size, .log = 1, .models = {.group_size = group_size, .sync_every = 1000}},
                RoundLayout(kSpans, 64)) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < size; ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
    }
    memory_.Map(std::move(blocks));
    for (int32_t r = 0; r < size; ++r)
      ranks_.push_back(
          std::make_unique<Rounds>(Rounds::Options{.self = r, .kernels = &ScalarKernels()},
                                   &memory_, network_.transport(Rank{r}).words()));
  }

  // A step of all with these models, which become what they are then.
  void Step(std::vector<double>* models) {
    uint64_t step = 0;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      reinterpret_cast<double*>(ranks_[r]->open())[1] = (*models)[r];
      step = ranks_[r]->Publish({});
    }
    for (bool moved = true; ranks_[0]->executed() < step && moved;) ranks_[0]->Advance(0, &moved);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      double model[3];
      void* to[] = {model};
      Merged merged;
      ranks_[r]->Merge(step, to, &merged);
      EXPECT_FALSE(merged.late);
      (*models)[r] = model[1];
    }
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
    for (const double model : models) EXPECT_EQ(model, sum * (1.0 / size)) << size;
    std::fill(models.begin(), models.end(), 512.0);
    ranks.Step(&models);
    for (const double model : models) EXPECT_NEAR(model, 512.0, 1e-9) << size;
  }
}

}  // namespace
}  // namespace covey
