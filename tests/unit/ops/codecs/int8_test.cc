// Goal: int8 keeps the rules of codecs; its numbers are those of the formula; NaN stays in its
// block.
// Method: the rules, on every instruction set; a slow reference in float64.
#include <bit>
#include <cstring>

#include "tests/unit/ops/codecs/rules.h"

namespace covey {
namespace {

TEST(Int8Test, KeepsTheRules) {
  for (const char* text : {"int8", "int8@block=16", "int8@block=20", "int8@block=1000"}) {
    SCOPED_TRACE(text);
    ProveRules(text);
  }
}

TEST(Int8Test, MultiplesOfAPowerOfTwoComeBackExactly) {
  for (const float unit : {1.0f, 0x1p-60f, 0x1p40f}) {
    std::vector<float> elements;
    for (int i = -127; i <= 127; ++i) elements.push_back(unit * static_cast<float>(i));
    const std::vector<float> back = RoundTrip("int8", elements);
    for (size_t i = 0; i < elements.size(); ++i) ASSERT_EQ(back[i], elements[i]) << unit;
  }
}

TEST(Int8Test, RoundsToNearestEven) {
  // The scale is 2: halves between numbers are odd.
  std::vector<float> elements = {254, 1, 3, 5, -1, -3, 2.9f, 3.1f};
  EXPECT_EQ(RoundTrip("int8", elements), (std::vector<float>{254, 0, 4, 4, 0, -4, 2, 4}));
}

TEST(Int8Test, IsWhatTheFormulaSays) {
  const std::vector<float> elements = RandomElements(10000, 5);
  ChosenCodec c;
  ASSERT_TRUE(ParseCodec("int8@block=64", &c).ok());
  const std::vector<std::byte> code = Encoded(BestKernels(), c, elements);
  for (size_t begin = 0; begin < elements.size(); begin += 64) {
    const size_t count = std::min<size_t>(64, elements.size() - begin);
    const std::byte* block = code.data() + c.form.EncodedBytes(begin);
    float scale;
    std::memcpy(&scale, block, sizeof(scale));
    double largest = 0;
    for (size_t i = 0; i < count; ++i)
      largest = std::max<double>(largest, std::fabs(elements[begin + i]));
    ASSERT_NEAR(scale, largest / 127, largest * 0x1p-28);
    for (size_t i = 0; i < count; ++i) {
      const double exact = elements[begin + i] * 127 / largest;
      const double number = static_cast<int8_t>(block[4 + i]);
      ASSERT_LE(std::fabs(number - exact), 0.5 + 0x1p-15) << elements[begin + i];
    }
  }
}

TEST(Int8Test, WhatIsNotFiniteMakesItsBlockNanAndNoOther) {
  for (const float odd : {kNan, -kNan, kInfinity, -kInfinity}) {
    std::vector<float> elements(48, 1.0f);
    elements[20] = odd;
    const std::vector<float> back = RoundTrip("int8@block=16", elements);
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_EQ(std::isnan(back[i]), i / 16 == 1) << odd << " at " << i;
  }
}

TEST(Int8Test, TheLargestFloatComesBackFinite) {
  for (const float v : {3.4028235e38f, -3.4028235e38f, 3.4028233e38f, 3.3e38f})
    EXPECT_TRUE(std::isfinite(RoundTrip("int8", std::vector<float>{v, 1})[0])) << v;
}

}  // namespace
}  // namespace covey
