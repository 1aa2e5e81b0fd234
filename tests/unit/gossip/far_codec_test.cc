// Goal: codes carry the same difference to both sides: the sum of two models stays, they come
// nearer, equal ones stay equal, and what has no code goes whole.
// Method: two ranks on hosts of their own; every kind of codec.
#include "core/gossip/far_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/gossip/far_ranks.h"

namespace covey {
namespace {

PairCodec CodecOf(const std::string& text) {
  PairCodec chosen;
  CodecText read;
  EXPECT_TRUE(ReadCodecText(text, CodecUse::kPairs, &read).ok()) << text;
  chosen.codec = FindReferenceCodec(read.name);
  chosen.values = read.values;
  if (chosen.codec == nullptr) {
    EXPECT_TRUE(ParseCodec(read.text, &chosen.alone).ok()) << text;
  }
  return chosen;
}

class FarCodecTest : public testing::TestWithParam<const char*> {};

TEST_P(FarCodecTest, TheSumStaysAndModelsComeNearer) {
  Ranks ranks(2, CodecOf(GetParam()));
  ranks.Set(0, 8, 0.001);
  ranks.Set(1, 2, 0.002);
  ranks.Begin();
  const std::vector<float> before[] = {ranks.floats(0), ranks.floats(1)};
  for (int i = 0; i < 12; ++i) ranks.Average(i % 2, 1 - i % 2);
  const std::vector<float> after[] = {ranks.floats(0), ranks.floats(1)};
  for (size_t i = 0; i < kFloats; ++i) {
    EXPECT_NEAR(after[0][i] + after[1][i], before[0][i] + before[1][i], 1e-4);
    // They began 6 apart; the coarsest codec has a step of about 0.6 there.
    ASSERT_LT(std::abs(after[0][i] - after[1][i]), 1.5) << i;
  }
  EXPECT_EQ(ranks.number(0), 5);
  EXPECT_EQ(ranks.far(0).counters().malformed + ranks.far(1).counters().malformed, 0u);
}

TEST_P(FarCodecTest, EqualModelsStayEqual) {
  Ranks ranks(2, CodecOf(GetParam()));
  for (const int32_t r : {0, 1}) ranks.Set(r, 3.3, 0.001);
  ranks.Begin();
  const std::vector<float> before = ranks.floats(0);
  for (int i = 0; i < 6; ++i) ranks.Average(i % 2, 1 - i % 2);
  EXPECT_EQ(ranks.floats(0), before);
  EXPECT_EQ(ranks.floats(1), before);
}

TEST_P(FarCodecTest, BytesAreThoseOfTheCodec) {
  Ranks ranks(2, CodecOf(GetParam()));
  ranks.Set(0, 8, 0.001);
  ranks.Set(1, 2, 0.002);
  ranks.Begin();
  ranks.TakeBytes();
  for (int i = 0; i < 8; ++i) ranks.Average(0, 1);
  ranks.TakeBytes();
  ranks.Average(0, 1);
  // Not more than two bytes an element, both ways.
  EXPECT_LT(ranks.TakeBytes(), 2 * (2.2 * kFloats + 100));
}

// A number that a code has no form for goes whole; what cannot be decoded goes whole next time.
TEST_P(FarCodecTest, WhatHasNoCodeGoesWhole) {
  Ranks ranks(2, CodecOf(GetParam()));
  ranks.Set(0, 3e38, 0);
  ranks.Set(1, 1e38, 0);
  ranks.Begin();
  for (int i = 0; i < 3; ++i) ranks.Average(0, 1);
  for (const int32_t r : {0, 1})
    for (const float one : ranks.floats(r)) ASSERT_NEAR(one / 1e38f, 2, 0.1);
  // Far apart at once.
  ranks.Learn(0, 1e30);
  const double before = static_cast<double>(ranks.floats(0)[0]) + ranks.floats(1)[0];
  for (int i = 0; i < 3; ++i) ranks.Average(1, 0);
  EXPECT_NEAR((static_cast<double>(ranks.floats(0)[0]) + ranks.floats(1)[0]) / before, 1, 1e-6);
}

TEST(FarCodecStepTest, WhatCannotBeDecodedGoesWholeNextTime) {
  Ranks ranks(2, CodecOf("lattice@8"));
  ranks.Set(0, 8, 0);
  ranks.Set(1, 2, 0);
  ranks.Begin();
  for (int i = 0; i < 40; ++i) ranks.Average(0, 1);  // the step is that of models that are near
  ranks.Learn(0, 1000);
  ranks.Average(0, 1);
  EXPECT_NEAR(ranks.floats(0)[0] - ranks.floats(1)[0], 1000, 1);
  ranks.Average(0, 1);
  EXPECT_NEAR(ranks.floats(0)[0] - ranks.floats(1)[0], 0, 1);
}

INSTANTIATE_TEST_SUITE_P(All, FarCodecTest,
                         testing::Values("bf16", "int8", "qsgd", "lattice@8", "lattice@4",
                                         "lattice@16", "bf16@random"));

}  // namespace
}  // namespace covey
