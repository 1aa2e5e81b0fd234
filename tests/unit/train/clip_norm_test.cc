// Gradients of all dtypes together are scaled to a largest norm, and left alone below it.
#include "core/train/clip_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace covey {
namespace {

class ClipNormTest : public testing::Test {
 protected:
  // 3000 floats, of which several blocks are made, and 2 doubles.
  ClipNormTest()
      : layout_({{DType::kF32, 3000}, {DType::kF64, 2}}), memory_(layout_.length_bytes()) {
    for (size_t i = 0; i < 3000; ++i) floats()[i] = i % 2 == 0 ? 2.0F : -2.0F;
    doubles()[0] = 30;
    doubles()[1] = -10;
  }
  float* floats() { return reinterpret_cast<float*>(memory_.data()); }
  double* doubles() {
    return reinterpret_cast<double*>(memory_.data() + layout_.offsets_bytes()[1]);
  }

  TrainerLayout layout_;
  std::vector<std::byte> memory_;
  const double norm_ = std::sqrt(4.0 * 3000 + 900 + 100);
};

TEST_F(ClipNormTest, TheNormIsOfAllElements) {
  EXPECT_NEAR(GradientNorm(layout_, memory_.data(), ScalarKernels()), norm_, 1e-9);
  EXPECT_NEAR(GradientNorm(layout_, memory_.data(), BestKernels()), norm_, 1e-9);
}

TEST_F(ClipNormTest, ALargerNormBecomesTheLimit) {
  ClipNorm(layout_, 5, BestKernels(), memory_.data());
  EXPECT_NEAR(GradientNorm(layout_, memory_.data(), BestKernels()), 5, 1e-5);
  EXPECT_NEAR(doubles()[0], 30 * 5 / norm_, 1e-6);
  EXPECT_NEAR(floats()[2999], -2 * 5 / norm_, 1e-6);
}

TEST_F(ClipNormTest, ASmallerOneIsLeftAsItIs) {
  const std::vector<std::byte> before = memory_;
  ClipNorm(layout_, 2 * norm_, BestKernels(), memory_.data());
  EXPECT_EQ(memory_, before);
}

TEST_F(ClipNormTest, ANanStaysWhatItIs) {
  floats()[7] = std::numeric_limits<float>::quiet_NaN();
  ClipNorm(layout_, 5, BestKernels(), memory_.data());
  EXPECT_TRUE(std::isnan(GradientNorm(layout_, memory_.data(), BestKernels())));
  EXPECT_EQ(floats()[0], 2.0F);
}

}  // namespace
}  // namespace covey
