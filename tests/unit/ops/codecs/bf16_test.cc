// Goal: bf16 keeps the rules of codecs, and values it can represent.
// Method: the rules, on every instruction set; a slow cast in integers.
#include <bit>

#include "tests/unit/ops/codecs/rules.h"

namespace covey {
namespace {

TEST(Bf16Test, KeepsTheRules) { ProveRules("bf16"); }

TEST(Bf16Test, EveryBfloat16ComesBackExactly) {
  std::vector<float> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto v = std::bit_cast<float>(bits << 16);
    if (!std::isnan(v)) all.push_back(v);
  }
  EXPECT_TRUE(SameBits(RoundTrip("bf16", all), all));
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
