// Goal: bf16 keeps the rules of codecs, and values it can represent.
// Method: the rules, on every instruction set; a slow cast in integers.
#include <bit>

#include "tests/unit/ops/codecs/rules.h"

namespace covey {
namespace {

TEST(Bf16Test, KeepsTheRules) {
  for (const char* text : {"bf16", "bf16@random=1"}) {
    SCOPED_TRACE(text);
    ProveRules(text);
  }
}

TEST(Bf16Test, WhatIsDrawnIsOfThePlaceAlone) { ExpectDrawsOfThePlaceAlone("bf16@random"); }

TEST(Bf16Test, AtRandomItIsRightInExpectation) {
  constexpr int kSeeds = 20000;
  const std::vector<float> elements = {1.0f,   1.001f, -1.0031f, 3.14159f, 1e-30f,
                                       -7e20f, 0.0f,   -0.0f,    255.3f,   1.0078125f};
  ChosenCodec c;
  ASSERT_TRUE(ParseCodec("bf16@random=1", &c).ok());
  std::vector<double> sums(elements.size());
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<std::byte> code(c.form.EncodedBytes(elements.size()));
    c.codec->encode(BestKernels(), c.values, elements, seed * 0x9e3779b97f4a7c15u, code.data());
    const std::vector<float> back = Decoded(BestKernels(), c, code, elements.size());
    for (size_t i = 0; i < elements.size(); ++i) sums[i] += back[i];
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    const double unit = std::fabs(elements[i]) * 0x1p-7;  // at most
    EXPECT_NEAR(sums[i] / kSeeds, elements[i], 5 * unit / 2 / std::sqrt(kSeeds)) << elements[i];
  }
  // To nearest even it is not.
  EXPECT_EQ(RoundTrip("bf16", std::vector<float>{1.001f})[0], 1.0f);
}

TEST(Bf16Test, EveryBfloat16ComesBackExactly) {
  std::vector<float> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto v = std::bit_cast<float>(bits << 16);
    if (!std::isnan(v)) all.push_back(v);
  }
  EXPECT_TRUE(SameBits(RoundTrip("bf16", all), all));
  EXPECT_TRUE(SameBits(RoundTrip("bf16@random=1", all), all));
}

TEST(Bf16Test, RoundsAsTheSlowCast) {
  const std::vector<float> elements = RandomElements(5000, 3);
  const std::vector<float> back = RoundTrip("bf16", elements);
  for (size_t i = 0; i < elements.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(elements[i]);
    const uint32_t rest = bits & 0xffff;
    const bool up = rest > 0x8000 || (rest == 0x8000 && (bits >> 16) % 2 == 1);
    const uint32_t upper = (bits >> 16) + (up ? 1 : 0);
    ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), upper << 16) << elements[i];
  }
}

}  // namespace
}  // namespace covey
