// Goal: what two models become by codes: their sum stays, each is less than half a step from the
// mean and right in expectation, equal models stay as they are, and what could not be decoded
// becomes the mean, bit for bit, and is counted.
// Method: drawn models at known distances; 20000 draws of one exchange.
#include "core/gossip/quantized_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr size_t kCount = 300;

class TwoModels {
 public:
  explicit TwoModels(int64_t bits = 8, size_t count = kCount)
      : TwoModels({.codec = FindReferenceCodec("lattice"), .values = {bits}}, count) {}
  TwoModels(const PairCodec& codec, size_t count)
      : layout_(std::vector<RoundSpan>{{DType::kF32, count}, {DType::kF64, 3}}, 1 << 20),
        mean_(codec, &layout_, &BestKernels()) {
    for (std::vector<std::byte>& model : models_) model.resize(layout_.length_bytes());
  }

  float* X() { return At(0); }
  float* Y() { return At(1); }
  const float* NewX() { return At(2); }
  const float* NewY() { return At(3); }
  double* Doubles(size_t model) {
    return reinterpret_cast<double*>(models_[model].data() + layout_.offsets_bytes()[1]);
  }

  void Draw(double apart, uint64_t seed) {
    Rng rng(seed);
    const auto uniform = [&] { return static_cast<double>(rng.Next() >> 11) * 0x1p-52 - 1; };
    for (size_t i = 0; i < kCount; ++i) {
      X()[i] = static_cast<float>(uniform());
      Y()[i] = X()[i] + static_cast<float>(apart * uniform());
    }
  }
  void Meet(uint64_t seed) {
    const std::byte* const from[] = {models_[0].data(), models_[1].data()};
    std::byte* const to[] = {models_[2].data(), models_[3].data()};
    mean_.Write(from, to, seed, Stores::kCached);
  }
  QuantizedPair& mean() { return mean_; }

 private:
  float* At(size_t model) { return reinterpret_cast<float*>(models_[model].data()); }

  RoundLayout layout_;
  QuantizedPair mean_;
  std::vector<std::byte> models_[4];
};

double Mean(float x, float y) { return (static_cast<double>(x) + static_cast<double>(y)) / 2; }

TEST(QuantizedPairTest, TheSumStaysAndTheErrorIsBelowHalfAStep) {
  for (const int64_t bits : {4, 8, 16}) {
    TwoModels two(bits);
    for (uint64_t round = 0; round < 50; ++round) {
      two.Draw(0.1 * std::pow(0.9, static_cast<double>(round)), kSeed + round);
      two.Meet(kSeed + round);
      const double error = two.mean().error();
      EXPECT_EQ(error == 0, round == 0) << "the first is sent whole";
      for (size_t i = 0; i < kCount; ++i) {
        const double mean = Mean(two.X()[i], two.Y()[i]);
        EXPECT_LE(std::abs(static_cast<double>(two.NewX()[i]) - mean), error + 0x1p-23);
        EXPECT_LE(std::abs(static_cast<double>(two.NewY()[i]) - mean), error + 0x1p-23);
        EXPECT_NEAR(Mean(two.NewX()[i], two.NewY()[i]), mean, 0x1p-23);
      }
    }
    EXPECT_EQ(two.mean().counters().repaired, 2u) << bits;
    EXPECT_EQ(two.mean().counters().decoded, 100u);
  }
}

TEST(QuantizedPairTest, ItIsRightInExpectation) {
  TwoModels two(8);
  two.Draw(0.1, kSeed);
  two.Meet(0);
  constexpr int kDraws = 20000;
  std::vector<double> sum(kCount);
  double step = 0;
  for (uint64_t draw = 1; draw <= kDraws; ++draw) {
    two.Meet(draw * 0x9e3779b97f4a7c15u);
    step = std::max(step, 2 * two.mean().error());
    for (size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(two.NewX()[i]);
  }
  // Five standard deviations of what is off by half a step at most, and float32's rounding.
  const double allowed = 5 * step / 2 / std::sqrt(kDraws) + 0x1p-24;
  EXPECT_LT(allowed, step / 40);
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_NEAR(sum[i] / kDraws, Mean(two.X()[i], two.Y()[i]), allowed) << i;
}

TEST(QuantizedPairTest, EqualModelsStayAsTheyAre) {
  TwoModels two(4);
  two.Draw(0.1, kSeed);
  two.Meet(1);
  std::memcpy(two.Y(), two.X(), kCount * sizeof(float));
  two.Meet(2);
  EXPECT_GT(two.mean().error(), 0);
  EXPECT_EQ(std::memcmp(two.NewX(), two.X(), kCount * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(two.NewY(), two.X(), kCount * sizeof(float)), 0);
}

TEST(QuantizedPairTest, WhatIsTooFarAwayIsFoundAndSentWhole) {
  TwoModels two(8);
  two.Draw(0.001, kSeed);
  two.Meet(1);
  two.Meet(2);
  const QuantizedCounters before = two.mean().counters();
  EXPECT_EQ(before.repaired, 2u);
  two.X()[7] += 100;  // one element of a chunk
  two.Meet(3);
  const QuantizedCounters after = two.mean().counters();
  EXPECT_EQ(after.repaired, before.repaired + 2);
  EXPECT_EQ(two.mean().error(), 0);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(two.NewX()[i], static_cast<float>(Mean(two.X()[i], two.Y()[i])));
    EXPECT_EQ(two.NewY()[i], two.NewX()[i]);
  }
  EXPECT_EQ(after.bytes - before.bytes, 2 * (16 + kCount + 4 * kCount + 24));
  two.Meet(4);  // The step has followed.
  EXPECT_EQ(two.mean().counters().repaired, after.repaired);
  EXPECT_EQ(two.mean().counters().bytes - after.bytes, 2 * (16 + kCount + 24));
}

TEST(QuantizedPairTest, WhatIsNotFiniteSpreadsAndSpoilsNoStep) {
  TwoModels two(8);
  two.Draw(0.001, kSeed);
  two.Meet(1);
  two.X()[3] = std::numeric_limits<float>::quiet_NaN();
  two.Y()[5] = std::numeric_limits<float>::infinity();
  two.Meet(2);
  for (const float* one : {two.NewX(), two.NewY()}) {
    EXPECT_TRUE(std::isnan(one[3]));
    EXPECT_TRUE(std::isinf(one[5]));
    EXPECT_TRUE(std::isfinite(one[4]));
  }
  two.X()[3] = two.Y()[3];
  two.Y()[5] = two.X()[5];
  two.Meet(3);
  EXPECT_GT(two.mean().error(), 0);
}

TEST(QuantizedPairTest, WhatIsNotFloat32BecomesTheMean) {
  TwoModels two(8);
  two.Draw(0.1, kSeed);
  for (size_t i = 0; i < 3; ++i) {
    two.Doubles(0)[i] = static_cast<double>(i);
    two.Doubles(1)[i] = 10;
  }
  two.Meet(1);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(two.Doubles(2)[i], (static_cast<double>(i) + 10) / 2);
    EXPECT_EQ(two.Doubles(3)[i], two.Doubles(2)[i]);
  }
}

TEST(QuantizedPairTest, ManyChunksHaveStepsOfTheirOwn) {
  TwoModels two(8, 10000);
  for (size_t i = 0; i < 10000; ++i) {
    two.X()[i] = 1;
    two.Y()[i] = i < 1024 ? 1.5f : 1.0001f;
  }
  two.Meet(1);
  two.Meet(2);
  EXPECT_EQ(two.mean().counters().repaired, 20u);
  for (size_t i = 1024; i < 10000; ++i) EXPECT_NEAR(two.NewX()[i], 1.00005f, 1e-6f);
}

// ---- Codecs of a scale of their own -------------------------------------------------------------

constexpr const char* kAlone[] = {"bf16", "bf16@random",      "fp16", "int8", "int8@16",
                                  "qsgd", "qsgd@8,block=1008"};

PairCodec Alone(const char* text) {
  PairCodec codec;
  EXPECT_TRUE(ParseCodec(text, &codec.alone).ok()) << text;
  return codec;
}

TEST(CodedAloneTest, TheSumStaysAndTheErrorIsThatOfTwoCodes) {
  for (const char* text : kAlone) {
    SCOPED_TRACE(text);
    TwoModels two(Alone(text), kCount);
    for (uint64_t round = 0; round < 50; ++round) {
      two.Draw(std::pow(0.8, static_cast<double>(round)), kSeed + round);
      two.Meet(kSeed + round);
      const double error = two.mean().error();
      EXPECT_GT(error, 0);
      EXPECT_LT(error, 0.5);
      for (size_t i = 0; i < kCount; ++i) {
        const double mean = Mean(two.X()[i], two.Y()[i]);
        EXPECT_LE(std::abs(static_cast<double>(two.NewX()[i]) - mean), error + 0x1p-22);
        EXPECT_NEAR(Mean(two.NewX()[i], two.NewY()[i]), mean, 0x1p-23);
      }
    }
    EXPECT_EQ(two.mean().counters().repaired, 0u);
    EXPECT_EQ(two.mean().counters().decoded, 100u);
  }
}

// Whole numbers that these codecs round to whole ones: halves of those are exact in float32.
TEST(CodedAloneTest, OfWholeNumbersTheSumStaysToTheBit) {
  for (const char* text : {"bf16", "bf16@random", "fp16"}) {
    SCOPED_TRACE(text);
    TwoModels two(Alone(text), kCount);
    Rng rng(kSeed);
    bool is_rounded = false;
    for (uint64_t round = 0; round < 20; ++round) {
      for (size_t i = 0; i < kCount; ++i) {
        two.X()[i] = static_cast<float>(rng.Below(60001)) - 30000;
        two.Y()[i] = static_cast<float>(rng.Below(60001)) - 30000;
      }
      two.Meet(round);
      for (size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(two.NewX()[i] + two.NewY()[i], two.X()[i] + two.Y()[i]) << i;
        is_rounded |= two.NewX()[i] != two.NewY()[i];
      }
    }
    EXPECT_TRUE(is_rounded);
  }
}

TEST(CodedAloneTest, EqualModelsStayAsTheyAre) {
  for (const char* text : kAlone) {
    SCOPED_TRACE(text);
    TwoModels two(Alone(text), kCount);
    for (uint64_t round = 0; round < 20; ++round) {
      two.Draw(0, kSeed + round);
      two.Meet(round);
      EXPECT_EQ(std::memcmp(two.NewX(), two.X(), kCount * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(two.NewY(), two.X(), kCount * sizeof(float)), 0);
    }
  }
}

TEST(CodedAloneTest, WhatDrawsIsRightInExpectation) {
  for (const char* text : {"bf16@random", "qsgd"}) {
    SCOPED_TRACE(text);
    TwoModels two(Alone(text), kCount);
    two.Draw(0.1, kSeed);
    constexpr int kDraws = 20000;
    std::vector<double> sum(kCount);
    for (uint64_t draw = 1; draw <= kDraws; ++draw) {
      two.Meet(draw * 0x9e3779b97f4a7c15u);
      for (size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(two.NewX()[i]);
    }
    const double allowed = 5 * two.mean().error() / std::sqrt(kDraws) + 0x1p-20;
    for (size_t i = 0; i < kCount; ++i)
      EXPECT_NEAR(sum[i] / kDraws, Mean(two.X()[i], two.Y()[i]), allowed) << i;
  }
}

TEST(CodedAloneTest, WhatIsNotFiniteAndWhatACodecMakesSoIsSentWhole) {
  TwoModels two(Alone("fp16"), kCount);
  two.Draw(0.1, kSeed);
  two.X()[3] = std::numeric_limits<float>::quiet_NaN();
  two.X()[5] = two.Y()[5] = 70000;  // beyond float16
  two.Meet(1);
  EXPECT_EQ(two.mean().counters().repaired, 2u);
  for (const float* one : {two.NewX(), two.NewY()}) {
    EXPECT_TRUE(std::isnan(one[3]));
    EXPECT_EQ(one[5], 70000.0f);
    EXPECT_EQ(one[4], static_cast<float>(Mean(two.X()[4], two.Y()[4])));
  }
  EXPECT_EQ(two.mean().counters().bytes, 2 * (2 * kCount + 4 * kCount + 24));
}

TEST(CodedAloneTest, WhatTravelsIsCounted) {
  const std::pair<const char*, uint64_t> kBytes[] = {
      {"bf16", 2 * kCount}, {"int8", kCount + 8}, {"qsgd", kCount + 4}};
  for (const auto& [text, bytes] : kBytes) {
    TwoModels two(Alone(text), kCount);
    two.Draw(0.1, kSeed);
    two.Meet(1);
    EXPECT_EQ(two.mean().counters().bytes, 2 * (bytes + 24)) << text;
  }
}

}  // namespace
}  // namespace covey
