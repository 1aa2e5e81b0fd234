// Goal: both forms of an average of a pair are the papers' formulas; ranks in turn are D-PSGD.
// Method: ranks that do their steps one after the other in one thread, over the words of the
// simulator; models of one number.
#include "core/gossip/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr RoundSpan kSpans[] = {{DType::kF64, 1}};

// Ranks of one host, each with a model of one float64.
class Swarm {
 public:
  Swarm(const PairRule& rule, std::vector<double> models)
      : models_(std::move(models)),
        network_({.size = rule.topology.size, .seed = 1, .region_bytes = 1 << 20}),
        memory_(rule.topology.size, RoundLayout(kSpans, 64)) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < size(); ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes()));
    }
    memory_.Map(std::move(blocks));
    for (int32_t r = 0; r < size(); ++r) {
      gossip_.push_back(std::make_unique<Gossip>(r, &memory_, network_.transport(Rank{r}).words(),
                                                 &ScalarKernels()));
      steps_.push_back(std::make_unique<GossipSteps>(r, rule, gossip_.back().get()));
      const void* span = &models_[static_cast<size_t>(r)];
      gossip_.back()->Begin({&span, 1});
    }
  }

  int32_t size() const { return memory_.size(); }
  // What rank r trains on, and what others see of it.
  double model(int32_t r) const { return models_[static_cast<size_t>(r)]; }
  double shared(int32_t r) {
    double value = 0;
    void* span = &value;
    EXPECT_TRUE(gossip_[0]->Peek(r, {&span, 1}));
    return value;
  }
  GossipSteps::Met Step(int32_t r, double progress) {
    models_[static_cast<size_t>(r)] += progress;
    void* span = &models_[static_cast<size_t>(r)];
    return steps_[static_cast<size_t>(r)]->Step({&span, 1});
  }
  void PushDelta(int32_t r) {
    void* span = &models_[static_cast<size_t>(r)];
    steps_[static_cast<size_t>(r)]->PushDelta({&span, 1});
  }

 private:
  std::vector<double> models_;
  InprocNetwork network_;
  PairMemory memory_;
  std::vector<std::unique_ptr<Gossip>> gossip_;
  std::vector<std::unique_ptr<GossipSteps>> steps_;
};

// Rank 0 begins, each time.
PairRule TwoRanks(int64_t local_steps, bool non_blocking) {
  return {.topology = {.kind = TopologyKind::kBipartite, .size = 2},
          .all_begin = false,
          .local_steps = local_steps,
          .non_blocking = non_blocking};
}

TEST(PairStepsTest, BlockingAveragesWhatIsLearntNow) {
  Swarm swarm(TwoRanks(2, false), {16, 64});
  EXPECT_EQ(swarm.Step(1, 4).partner, -1);
  EXPECT_EQ(swarm.Step(0, 1).partner, -1);
  EXPECT_EQ(swarm.shared(0), 16);
  EXPECT_EQ(swarm.Step(0, 1).partner, 1);
  EXPECT_EQ(swarm.model(0), (16 + 2 + 64) / 2);
  EXPECT_EQ(swarm.shared(0), 41);
  EXPECT_EQ(swarm.shared(1), 41);
  EXPECT_EQ(swarm.model(1), 68);  // in the middle of its steps
  EXPECT_TRUE(swarm.Step(1, 8).merged);
  EXPECT_EQ(swarm.model(1), 41 + 4 + 8);
  EXPECT_EQ(swarm.shared(1), 53);
}

// X += (Y' - B) / 2, and Y and B become (B + Y') / 2, for both; X - B stays.
TEST(PairStepsTest, NonblockingAveragesWhatWasThereBefore) {
  Swarm swarm(TwoRanks(2, true), {16, 64});
  swarm.Step(1, 4);
  swarm.Step(0, 1);
  const GossipSteps::Met met = swarm.Step(0, 1);
  EXPECT_EQ(met.partner, 1);
  EXPECT_FALSE(met.merged);
  EXPECT_EQ(swarm.model(0), (16 + 2) + (64 - 16) / 2);
  EXPECT_EQ(swarm.shared(0), 42);  // its steps are pushed after that
  EXPECT_EQ(swarm.shared(1), 40);
  EXPECT_EQ(swarm.model(1), 68);
  EXPECT_TRUE(swarm.Step(1, 8).merged);
  EXPECT_EQ(swarm.model(1), 64 + (16 - 64) / 2 + 4 + 8);
  EXPECT_EQ(swarm.model(0) + swarm.model(1), 16 + 2 + 64 + 12);
}

TEST(PairStepsTest, WhatIsLeftOverIsHandedInOnce) {
  for (const bool non_blocking : {false, true}) {
    Swarm swarm(TwoRanks(3, non_blocking), {16, 64});
    swarm.Step(0, 1);
    swarm.Step(0, 1);
    swarm.PushDelta(0);
    swarm.PushDelta(0);
    EXPECT_EQ(swarm.shared(0), 18);
    swarm.Step(0, 1);
    swarm.Step(0, 1);
    EXPECT_EQ(swarm.shared(0), 18);  // a batch has begun anew
    EXPECT_EQ(swarm.Step(0, 1).partner, 1);
  }
}

// D-PSGD, combine after adapt, of two: both become the mean of what both have learnt.
TEST(PairStepsTest, TwoRanksInTurnAreSynchronousDecentralisedSgd) {
  Swarm swarm(TwoRanks(1, false), {0, 0});
  double expected = 0;
  for (int step = 1; step <= 40; ++step) {
    swarm.Step(1, 2 * step);
    swarm.Step(0, 6 * step);
    expected += 4 * step;
    EXPECT_EQ(swarm.shared(0), expected);
    EXPECT_EQ(swarm.shared(1), expected);
    EXPECT_EQ(swarm.model(0), expected);
  }
}

TEST(PairStepsTest, EachRankIsInOneAverageForEachOfItsBatches) {
  const PairRule rule{.topology = {.kind = TopologyKind::kMatching, .size = 8},
                      .all_begin = false,
                      .local_steps = 3};
  Swarm swarm(rule, std::vector<double>(8));
  int met = 0;
  std::vector<int> in(8);
  for (int step = 0; step < 300; ++step)
    for (int32_t r = 0; r < 8; ++r) {
      const int32_t partner = swarm.Step(r, 1).partner;
      if (partner < 0) continue;
      ++met;
      ++in[static_cast<size_t>(r)];
      ++in[static_cast<size_t>(partner)];
    }
  EXPECT_EQ(met, 100 * 4);
  for (const int one : in) EXPECT_EQ(one, 100);
}

// Noise without a gradient: alone, models would be as far apart as it adds up to.
TEST(PairStepsTest, ModelsStayTogether) {
  for (const bool non_blocking : {false, true}) {
    constexpr int32_t kSize = 8;
    constexpr int kSteps = 3000;
    const PairRule rule{.topology = {.kind = TopologyKind::kMatching, .size = kSize},
                        .all_begin = false,
                        .local_steps = 3,
                        .is_random = true,
                        .non_blocking = non_blocking};
    Swarm swarm(rule, std::vector<double>(kSize));
    Rng rng(20261122);
    double sum = 0, largest = 0;
    for (int step = 0; step < kSteps; ++step) {
      double mean = 0, apart = 0;
      for (int32_t r = 0; r < kSize; ++r) {
        const double progress = rng.Percent(50) ? 1 : -1;
        sum += progress;
        swarm.Step(r, progress);
      }
      for (int32_t r = 0; r < kSize; ++r) mean += swarm.shared(r) / kSize;
      for (int32_t r = 0; r < kSize; ++r) apart += std::pow(swarm.shared(r) - mean, 2);
      largest = std::max(largest, apart);
    }
    EXPECT_LT(largest, 60 * kSize);  // of kSteps * kSize without any average
    double total = 0;
    for (int32_t r = 0; r < kSize; ++r) {
      swarm.PushDelta(r);
      total += swarm.shared(r);
    }
    EXPECT_NEAR(total, sum, 1e-9);
  }
}

}  // namespace
}  // namespace covey
