// Goal: when all come, a version is the sum of all in rank order, bit for bit, as an allreduce has it
// (T11), and every rank reads that, for any number of ranks.
// Method: ranks in turn on one thread: all publish, one makes the version, all read.
#include "core/round/rounds.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/base/rng.h"
#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr RoundSpan kSpans[1] = {{DType::kF32, 5}};

TEST(RoundsTest, WhenAllComeAVersionIsTheSumInRankOrder) {
  Rng rng(kSeed);
  for (int32_t size = 1; size <= 64; ++size) {
    InprocNetwork network({.size = size, .seed = 1, .region_bytes = 1 << 20});
    RoundMemory memory({.size = size, .log = 1}, RoundLayout(kSpans, 64));
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < size; ++r) {
      Transport& transport = network.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory.BlockBytes(r)));
    }
    memory.Map(std::move(blocks));
    std::vector<std::unique_ptr<Rounds>> ranks;
    for (int32_t r = 0; r < size; ++r)
      ranks.push_back(
          std::make_unique<Rounds>(Rounds::Options{.self = r, .kernels = &ScalarKernels()}, &memory,
                                   network.transport(Rank{r}).words()));
    for (uint64_t version = 1; version <= 6; ++version) {
      float sum[5] = {};
      for (int32_t r = 0; r < size; ++r) {
        auto* gradient = reinterpret_cast<float*>(ranks[static_cast<size_t>(r)]->open());
        for (int i = 0; i < 5; ++i) {
          gradient[i] = static_cast<float>(rng.Below(1 << 20)) / 3.0f;
          sum[i] = r == 0 ? gradient[i] : sum[i] + gradient[i];
        }
        ASSERT_EQ(ranks[static_cast<size_t>(r)]->Publish({}), version);
        ASSERT_EQ(ranks[0]->executed(), version - 1) << "before all have come";
      }
      Rounds& one = *ranks[rng.Below(static_cast<uint64_t>(size))];
      for (bool moved = true; one.executed() < version && moved;) one.Advance(0, &moved);
      for (const std::unique_ptr<Rounds>& rank : ranks) {
        float result[5];
        void* to[] = {result};
        RoundRecord record;
        ASSERT_EQ(rank->Read(version, to, &record), Found::kYes) << size;
        EXPECT_EQ(record.header.divisor, size);
        for (int i = 0; i < 5; ++i) EXPECT_EQ(result[i], sum[i]) << size << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace covey
