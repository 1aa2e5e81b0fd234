// The rules of core/run/codec.h, tried on one codec with the kernels of every instruction set.
#ifndef COVEY_TESTS_UNIT_OPS_CODECS_RULES_H_
#define COVEY_TESTS_UNIT_OPS_CODECS_RULES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/run/codec.h"

namespace covey {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<std::byte> Encoded(const Kernels& kernels, const ChosenCodec& c,
                                      std::span<const float> elements) {
  constexpr std::byte kGuard{0xa5};
  const size_t bytes = c.form.EncodedBytes(elements.size());
  std::vector<std::byte> code(bytes + 8, kGuard);
  c.codec->encode(kernels, c.values, elements, 1, code.data());
  for (size_t i = bytes; i < code.size(); ++i) EXPECT_EQ(code[i], kGuard) << "beyond its bytes";
  code.resize(bytes);
  return code;
}

inline std::vector<float> Decoded(const Kernels& kernels, const ChosenCodec& c,
                                  const std::vector<std::byte>& code, size_t count) {
  std::vector<float> elements(count + 2, 77.0f);
  c.codec->decode(kernels, c.values, code.data(), {elements.data(), count});
  EXPECT_EQ(elements[count], 77.0f) << "beyond its elements";
  elements.resize(count);
  return elements;
}

// What comes back of `elements`.
inline std::vector<float> RoundTrip(const std::string& text, std::span<const float> elements) {
  ChosenCodec c;
  EXPECT_TRUE(ParseCodec(text, &c).ok()) << text;
  return Decoded(BestKernels(), c, Encoded(BestKernels(), c, elements), elements.size());
}

// Magnitudes of many sizes, within a block and between blocks.
inline std::vector<float> RandomElements(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> elements(count);
  float size = 1;
  for (size_t i = 0; i < count; ++i) {
    if (i % 61 == 0) size = std::ldexp(1.0f, static_cast<int>(rng.Below(60)) - 45);
    elements[i] = size * (static_cast<float>(rng.Below(1 << 24)) / (1 << 23) - 1.0f);
  }
  return elements;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

// codec-D1, codec-D2 and codec-D3 on `elements`.
inline void ExpectRules(const ChosenCodec& c, const std::vector<float>& elements) {
  const std::vector<std::byte> code = Encoded(ScalarKernels(), c, elements);
  const std::vector<float> back = Decoded(ScalarKernels(), c, code, elements.size());
  for (const Kernels* kernels : AllKernels()) {
    SCOPED_TRACE(kernels->name);
    ASSERT_EQ(Encoded(*kernels, c, elements), code) << "D1: other bytes";
    ASSERT_TRUE(SameBits(Decoded(*kernels, c, code, elements.size()), back)) << "D1: other bits";
  }
  const size_t block = c.form.block_elems;
  for (size_t begin = 0; begin < elements.size(); begin += block) {
    const size_t count = std::min(block, elements.size() - begin);
    const std::span<const float> own(elements.data() + begin, count);
    const auto at = code.begin() + static_cast<long>(c.form.EncodedBytes(begin));
    const std::vector<std::byte> alone = Encoded(ScalarKernels(), c, own);
    if (c.Draws() && begin > 0) {
      const std::vector<std::byte> there(at, at + static_cast<long>(alone.size()));
      const auto from = back.begin() + static_cast<long>(begin);
      ASSERT_TRUE(SameBits(Decoded(ScalarKernels(), c, there, count),
                           std::vector<float>(from, from + static_cast<long>(count))))
          << "D2: the block at " << begin;
    } else {
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), at)) << "D2: the block at " << begin;
    }
    double largest = 0;
    bool finite = true;
    for (float v : own) {
      largest = std::max<double>(largest, std::fabs(v));
      finite = finite && std::isfinite(v);
    }
    const double bound = c.codec->bound(c.values, largest);
    for (size_t i = 0; i < count; ++i) {
      const float was = own[i];
      const float is = back[begin + i];
      ASSERT_TRUE(std::isfinite(was) || !std::isfinite(is)) << "D3: " << was;
      if (!finite || std::isinf(bound)) continue;
      ASSERT_LE(std::fabs(double{is} - was), bound) << "D3: " << was << " became " << is;
    }
  }
}

// What is drawn is of no element: numbers that follow are rounded as if nothing had changed. Of
// codecs to which a number's neighbors are nothing.
inline void ExpectDrawsOfThePlaceAlone(const std::string& text) {
  ChosenCodec c;
  ASSERT_TRUE(ParseCodec(text, &c).ok()) << text;
  std::vector<float> elements = RandomElements(3 * c.form.block_elems + 7, 5);
  const std::vector<float> before =
      Decoded(BestKernels(), c, Encoded(BestKernels(), c, elements), elements.size());
  const size_t changed = c.form.block_elems + 3;
  elements[changed] *= 1.75f;
  const std::vector<float> after =
      Decoded(BestKernels(), c, Encoded(BestKernels(), c, elements), elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    if (i == changed) continue;
    ASSERT_EQ(before[i], after[i]) << text << " at " << i;
  }
}

// codec-D4: a sum that is encoded errs no more than its terms would. Where not all are finite, or
// where the sum leaves the codec's range, there is no bound.
inline void ExpectBoundIsThatOfTheTerms(const ChosenCodec& c) {
  for (double a = 0x1p-130; a < 0x1p126; a *= 7)
    for (double b = a; b < 0x1p126; b *= 5) {
      const double whole = c.codec->bound(c.values, a + b);
      if (std::isinf(whole)) continue;
      ASSERT_LE(whole, (c.codec->bound(c.values, a) + c.codec->bound(c.values, b)) * (1 + 1e-12))
          << a << " and " << b;
    }
}

// Every rule, for every length around blocks and vectors, with what is not finite anywhere.
inline void ProveRules(const std::string& text) {
  ChosenCodec c;
  const Status status = ParseCodec(text, &c);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(c.form.Possible());
  ExpectBoundIsThatOfTheTerms(c);
  const size_t block = c.form.block_elems;
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{17}, block - 1, block,
        block + 1, 2 * block - 1, 2 * block, 3 * block + 7}) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      std::vector<float> elements = RandomElements(count, seed);
      ExpectRules(c, elements);
      for (const float odd : {kNan, kInfinity, -kInfinity, -0.0f, 1e-45f, 3.4028235e38f}) {
        if (count == 0) continue;
        elements[(seed * 7919) % count] = odd;
        ExpectRules(c, elements);
      }
    }
  }
  for (const float v : {0.0f, -0.0f, 1e-45f, 1e-38f, 1e-30f, 3.4028235e38f, 65519.0f, 65504.0f})
    ExpectRules(c, std::vector<float>(block + 3, v));
}

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_OPS_CODECS_RULES_H_
