// Goal: topk keeps the rules of codecs, and of each block the largest, whole.
// Method: the rules; a slow reference that sorts; the contraction that error feedback needs.
#include <numeric>

#include "tests/unit/ops/codecs/rules.h"

namespace covey {
namespace {

TEST(TopkTest, KeepsTheRules) {
  for (const char* text :
       {"topk", "topk@block=16", "topk@bits=4,block=24", "topk@bits=16,block=4096"}) {
    SCOPED_TRACE(text);
    ProveRules(text);
  }
}

size_t RoomOf(size_t block, int64_t bits) {
  return std::min(block, (6 + block * static_cast<size_t>(bits) / 8) / 6);
}

std::vector<float> Reference(std::span<const float> block, size_t kept) {
  std::vector<size_t> order(block.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::fabs(block[a]) > std::fabs(block[b]); });
  std::vector<float> result(block.size(), 0.0f);
  for (size_t i = 0; i < kept; ++i) result[order[i]] = block[order[i]];
  return result;
}

TEST(TopkTest, KeepsTheLargestOfEachBlockAndOfEqualOnesTheFirst) {
  ChosenCodec c;
  ASSERT_TRUE(ParseCodec("topk@bits=3,block=64", &c).ok());
  for (const size_t count : {1u, 5u, 64u, 65u, 200u}) {
    std::vector<float> elements = RandomElements(count, count);
    for (size_t i = 0; i < count; i += 3) elements[i] = i % 2 == 0 ? 0.5f : -0.5f;
    const std::vector<float> back = RoundTrip(c.text, elements);
    for (size_t at = 0; at < count; at += 64) {
      const std::span<const float> own(elements.data() + at, std::min<size_t>(64, count - at));
      const size_t kept = RoomOf(own.size(), 3);
      EXPECT_GE(kept, 1u);
      const std::vector<float> expected = Reference(own, kept);
      double lost = 0, whole = 0;
      for (size_t i = 0; i < own.size(); ++i) {
        ASSERT_EQ(back[at + i], expected[i]) << count << " elements, at " << at + i;
        lost += std::pow(double{own[i]} - back[at + i], 2);
        whole += double{own[i]} * own[i];
      }
      const double share = static_cast<double>(kept) / static_cast<double>(own.size());
      EXPECT_LE(lost, (1 - share) * whole * (1 + 1e-12));
    }
  }
}

// What is sent and what is kept for later are what was to be sent: nothing is lost (telescoping).
TEST(TopkTest, WithErrorFeedbackEverythingIsSentInTheEnd) {
  constexpr size_t kElems = 300;
  std::vector<double> wanted(kElems), sent(kElems);
  std::vector<float> residual(kElems, 0.0f);
  for (uint64_t step = 1; step <= 200; ++step) {
    Rng rng(step);
    std::vector<float> p(kElems);
    for (size_t i = 0; i < kElems; ++i) {
      // Whole numbers: sums are exact.
      const auto gradient = static_cast<float>(static_cast<int64_t>(rng.Below(65)) - 32);
      wanted[i] += gradient;
      p[i] = gradient + residual[i];
    }
    const std::vector<float> decoded = RoundTrip("topk@block=64", p);
    for (size_t i = 0; i < kElems; ++i) {
      sent[i] += decoded[i];
      residual[i] = p[i] - decoded[i];
    }
    for (size_t i = 0; i < kElems; ++i) ASSERT_EQ(sent[i] + residual[i], wanted[i]) << step;
  }
  EXPECT_TRUE(std::any_of(residual.begin(), residual.end(), [](float v) { return v != 0; }));
}

TEST(TopkTest, WhatIsNotFiniteMakesItsBlockNanAndNoOther) {
  for (const float odd : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> elements(48, 1.0f);
    elements[20] = odd;
    const std::vector<float> back = RoundTrip("topk@block=16", elements);
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_EQ(std::isnan(back[i]), i / 16 == 1) << odd << " at " << i;
  }
}

}  // namespace
}  // namespace covey
