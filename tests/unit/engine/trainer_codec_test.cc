// Contributions by a codec agree with the formulas of trainer_codec.h. The residual of a biased
// codec is sent later, and a failure loses nothing.
#include "core/engine/trainer_codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace covey {
namespace {

constexpr int64_t kCount = 256;

TrainerCodec CodecOf(const char* text, CodecUse use, const TrainerLayout* layout) {
  ChosenCodec chosen;
  EXPECT_TRUE(ParseCodec(text, &chosen).ok());
  return {chosen, use, layout, &BestKernels()};
}

// One rank: the mean of all is its own contribution, as it is decoded.
struct Rank1 {
  TrainerLayout layout{{{DType::kF32, kCount}, {DType::kF64, 3}}};
  TrainerCodec codec;
  std::vector<std::byte> memory;

  Rank1(const char* text, CodecUse use)
      : codec(CodecOf(text, use, &layout)), memory(layout.length_bytes()) {}

  float* floats() { return reinterpret_cast<float*>(memory.data()); }
  void Exchange(bool is_whole, bool is_ok = true) {
    codec.Begin(memory.data(), is_whole);
    const TrainerLayout::Piece& piece = layout.pieces()[0];
    auto* travels = reinterpret_cast<float*>(codec.PlaceOf(piece));
    if (codec.Encodes(piece)) {
      std::vector<float> residual(static_cast<size_t>(kCount));
      const std::span<const float> sent(travels, residual.size());
      ResidualOf(codec.chosen(), BestKernels(), sent, residual);
      for (size_t i = 0; i < residual.size(); ++i) travels[i] -= residual[i];
    }
    codec.End(is_ok);
  }
};

TEST(TrainerCodecTest, OtherElementsTravelAsTheyAre) {
  Rank1 rank("bf16", CodecUse::kModels);
  rank.Exchange(false);
  rank.codec.Begin(rank.memory.data(), false);
  EXPECT_TRUE(rank.codec.Encodes(rank.layout.pieces()[0]));
  EXPECT_FALSE(rank.codec.Encodes(rank.layout.pieces()[1]));
  EXPECT_EQ(rank.codec.PlaceOf(rank.layout.pieces()[1]),
            rank.memory.data() + rank.layout.pieces()[1].offset_bytes);
}

TEST(TrainerCodecTest, AllGradientsArriveInTheEnd) {
  Rank1 rank("topk@bits=2+block=64", CodecUse::kGradients);
  double given = 0, arrived = 0;
  const auto step = [&](bool is_zero) {
    for (int64_t i = 0; i < kCount; ++i)
      rank.floats()[i] = is_zero ? 0.0f : static_cast<float>(i % 7);
    given += std::accumulate(rank.floats(), rank.floats() + kCount, 0.0);
    rank.Exchange(false);
    arrived += std::accumulate(rank.floats(), rank.floats() + kCount, 0.0);
  };
  for (int i = 0; i < 5; ++i) step(false);
  EXPECT_LT(arrived, given) << "most was left out so far";
  for (int i = 0; i < 100; ++i) step(true);
  EXPECT_EQ(arrived, given);
}

TEST(TrainerCodecTest, ModelsTravelAsWhatTheyHaveMovedSinceTheLastAverage) {
  Rank1 rank("int8", CodecUse::kModels);
  for (int64_t i = 0; i < kCount; ++i) rank.floats()[i] = 1000.0f + static_cast<float>(i) / 3;
  const std::vector<float> before(rank.floats(), rank.floats() + kCount);
  rank.Exchange(false);
  EXPECT_EQ(std::vector<float>(rank.floats(), rank.floats() + kCount), before) << "no anchor yet";
  EXPECT_TRUE(rank.codec.is_anchored());
  for (int64_t i = 0; i < kCount; ++i) rank.floats()[i] += 0.001f * static_cast<float>(i % 5);
  rank.Exchange(false);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(rank.floats()[i], before[i] + 0.001 * static_cast<double>(i % 5), 2e-4)
        << "the error is that of the moves, not of the model";
}

TEST(TrainerCodecTest, AWholeModelHasWhatWasLeftOutOfIt) {
  Rank1 rank("topk@bits=2+block=64", CodecUse::kModels);
  rank.Exchange(false);
  for (int64_t i = 0; i < kCount; ++i) rank.floats()[i] += 1;
  rank.Exchange(false);
  EXPECT_LT(std::accumulate(rank.floats(), rank.floats() + kCount, 0.0), kCount);
  rank.Exchange(true);
  EXPECT_EQ(std::accumulate(rank.floats(), rank.floats() + kCount, 0.0), kCount);
}

TEST(TrainerCodecTest, AFailedAverageLosesNothingOfTheModel) {
  Rank1 rank("topk@bits=2+block=64", CodecUse::kModels);
  rank.Exchange(false);
  for (int64_t i = 0; i < kCount; ++i) rank.floats()[i] += 1;
  rank.Exchange(false);
  rank.Exchange(false, false);
  rank.Exchange(false, false);
  rank.Exchange(true);
  EXPECT_EQ(std::accumulate(rank.floats(), rank.floats() + kCount, 0.0), kCount);
}

TEST(TrainerCodecTest, ItsArraysAreItsState) {
  Rank1 rank("topk@bits=2+block=64", CodecUse::kModels),
      loaded("topk@bits=2+block=64", CodecUse::kModels);
  for (int i = 0; i < 3; ++i) {
    for (int64_t at = 0; at < kCount; ++at) rank.floats()[at] += static_cast<float>(at % 3);
    rank.Exchange(false);
  }
  const std::vector<TrainerCodec::Array> from = rank.codec.arrays(), to = loaded.codec.arrays();
  ASSERT_EQ(from.size(), 2u);
  for (size_t i = 0; i < from.size(); ++i)
    std::memcpy(to[i].bytes.data(), from[i].bytes.data(), from[i].bytes.size());
  loaded.codec.OnWritten(rank.codec.is_anchored());
  loaded.memory = rank.memory;
  rank.Exchange(false);
  loaded.Exchange(false);
  EXPECT_EQ(rank.memory, loaded.memory);
}

}  // namespace
}  // namespace covey
