// Goal: qsgd keeps the rules of codecs, is right in expectation, and within the paper's variance.
// Method: the rules, on every instruction set; means over many seeds, in float64.
#include "tests/unit/ops/codecs/rules.h"

namespace covey {
namespace {

std::vector<float> RoundTripOf(const ChosenCodec& c, std::span<const float> elements,
                               uint64_t seed) {
  std::vector<std::byte> code(c.form.EncodedBytes(elements.size()));
  c.codec->encode(BestKernels(), c.values, elements, seed, code.data());
  return Decoded(BestKernels(), c, code, elements.size());
}

ChosenCodec Chosen(const std::string& text) {
  ChosenCodec chosen;
  EXPECT_TRUE(ParseCodec(text, &chosen).ok()) << text;
  return chosen;
}

TEST(QsgdTest, KeepsTheRules) {
  for (const char* text :
       {"qsgd", "qsgd@block=16", "qsgd@bits=4,block=20", "qsgd@bits=4", "qsgd@block=1000"}) {
    SCOPED_TRACE(text);
    ProveRules(text);
  }
}

// Both bounds of the paper, and a mean that is right to five standard deviations of it.
TEST(QsgdTest, IsRightInExpectationAndNotFurtherThanThePaperSays) {
  constexpr size_t kElems = 64;
  constexpr int kSeeds = 20000;
  std::vector<float> elements(kElems);
  Rng rng(3);
  for (float& element : elements)
    element = static_cast<float>(rng.Below(1 << 20)) / (1 << 19) - 1.0f;
  for (const int bits : {4, 8}) {
    SCOPED_TRACE(bits);
    const ChosenCodec c = Chosen("qsgd@block=64,bits=" + std::to_string(bits));
    const double levels = (1 << (bits - 1)) - 1;
    double norm = 0, variance = 0;
    for (const float element : elements) norm += double{element} * element;
    std::vector<double> sums(kElems);
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const std::vector<float> back = RoundTripOf(c, elements, seed * 0x9e3779b97f4a7c15u);
      for (size_t i = 0; i < kElems; ++i) {
        sums[i] += back[i];
        variance += std::pow(double{back[i]} - elements[i], 2) / kSeeds;
      }
    }
    const double level = std::sqrt(norm) / levels;
    for (size_t i = 0; i < kElems; ++i)
      EXPECT_NEAR(sums[i] / kSeeds, elements[i],
                  5 * level / 2 / std::sqrt(kSeeds) + level * 0x1p-16)
          << i;
    const double d = kElems;
    EXPECT_LE(variance, std::min(d / (levels * levels), std::sqrt(d) / levels) * norm);
    EXPECT_GT(variance, 0);
  }
}

TEST(QsgdTest, AnotherSeedAndAnotherBlockAreRoundedOtherwise) {
  const ChosenCodec c = Chosen("qsgd@bits=4,block=64");
  std::vector<float> elements(128, 0.125f);
  elements[64] = 0.5f;
  const std::vector<float> one = RoundTripOf(c, elements, 1), same = RoundTripOf(c, elements, 1);
  EXPECT_TRUE(SameBits(one, same));
  EXPECT_FALSE(SameBits(one, RoundTripOf(c, elements, 2)));
  int alike = 0;
  for (size_t i = 1; i < 64; ++i) alike += (one[i] > 0.125f) == (one[64 + i] > 0.125f);
  EXPECT_LT(alike, 63);
}

TEST(QsgdTest, WhatStandsAloneInItsBlockComesBack) {
  for (const float v : {1.0f, -1.0f, 3.25e20f, -7e-20f}) {
    std::vector<float> elements(32, 0.0f);
    elements[9] = v;
    const std::vector<float> back = RoundTrip("qsgd@block=16", elements);
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_NEAR(back[i], elements[i], std::fabs(v) * 0x1p-22) << i;
  }
}

TEST(QsgdTest, WhatIsNotFiniteMakesItsBlockNanAndNoOther) {
  for (const float odd : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> elements(48, 1.0f);
    elements[20] = odd;
    const std::vector<float> back = RoundTrip("qsgd@block=16", elements);
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_EQ(std::isnan(back[i]), i / 16 == 1) << odd << " at " << i;
  }
}

}  // namespace
}  // namespace covey
