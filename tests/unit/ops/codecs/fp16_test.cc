// Goal: fp16 keeps the rules of codecs, and values it can represent; what is too large shows.
// Method: the rules, on every instruction set; all halves, made with ldexp.
#include <bit>

#include "tests/unit/ops/codecs/rules.h"

namespace covey {
namespace {

TEST(Fp16Test, KeepsTheRules) { ProveRules("fp16"); }

TEST(Fp16Test, EveryHalfComesBackExactly) {
  std::vector<float> all;
  for (int exponent = 0; exponent < 31; ++exponent)
    for (int fraction = 0; fraction < 1024; ++fraction)
      for (const float sign : {1.0f, -1.0f})
        all.push_back(sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                            : std::ldexp(static_cast<float>(1024 + fraction),
                                                         exponent - 25)));
  EXPECT_TRUE(SameBits(RoundTrip("fp16", all), all));
}

TEST(Fp16Test, WhatIsTooLargeBecomesInfinity) {
  const std::vector<float> back = RoundTrip("fp16", std::vector<float>{65519, 65520, -1e30f});
  EXPECT_EQ(back, (std::vector<float>{65504, kInfinity, -kInfinity}));
}

}  // namespace
}  // namespace covey
