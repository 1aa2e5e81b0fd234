// The factor of an average: integers, which are truncated, come out exact wherever doubles are.
#include "core/base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

namespace covey {
namespace {

TEST(AverageFactorTest, TruncatedProductsAreQuotients) {
  for (int32_t size = 1; size <= 1024; ++size) {
    const double factor = AverageFactor(DType::kI64, size);
    for (const int64_t mean : {int64_t{1}, int64_t{3}, int64_t{255}, int64_t{1} << 40}) {
      for (const int64_t rest : {0, size / 2, size - 1}) {
        const auto sum = static_cast<double>(mean * size + rest);
        ASSERT_EQ(std::trunc(sum * factor), static_cast<double>(mean)) << size << ", " << sum;
        ASSERT_EQ(std::trunc(-sum * factor), static_cast<double>(-mean)) << size << ", " << -sum;
      }
    }
  }
}

TEST(AverageFactorTest, OfRealNumbersIsTheNearest) {
  for (int32_t size = 1; size <= 1024; ++size)
    EXPECT_EQ(AverageFactor(DType::kF32, size), 1.0 / static_cast<double>(size));
}

}  // namespace
}  // namespace covey
