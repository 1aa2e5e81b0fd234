// Parameters of a dtype lie side by side, each on a line of the cache.
#include "core/train/layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace covey {
namespace {

TEST(TrainerLayoutTest, APieceHasTheParametersOfADtypeInTheirOrder) {
  const TrainerLayout layout({{DType::kF32, 3}, {DType::kF64, 9}, {DType::kF32, 16}});
  EXPECT_EQ(layout.pieces()[1].first, 1u);
  ASSERT_EQ(layout.pieces().size(), 2u);
  EXPECT_EQ(layout.pieces()[0].dtype, DType::kF32);
  EXPECT_EQ(layout.pieces()[0].count, 32);  // 3 and 16 floats, on a line each
  EXPECT_EQ(layout.pieces()[1].offset_bytes, 128u);
  EXPECT_EQ(layout.pieces()[1].count, 16);
  EXPECT_EQ(layout.offsets_bytes(), (std::vector<size_t>{0, 128, 64}));
  EXPECT_EQ(layout.length_bytes(), 256u);
}

TEST(TrainerLayoutTest, NoParametersOverlap) {
  std::vector<TrainerLayout::Parameter> parameters;
  for (int64_t i = 1; i <= 40; ++i)
    parameters.push_back({i % 3 == 0 ? DType::kF16 : i % 3 == 1 ? DType::kF32 : DType::kF64, i});
  const TrainerLayout layout(parameters);
  for (size_t a = 0; a < parameters.size(); ++a) {
    EXPECT_EQ(layout.offsets_bytes()[a] % 64, 0u);
    for (size_t b = 0; b < parameters.size(); ++b) {
      const size_t begin = layout.offsets_bytes()[b];
      const size_t end =
          begin + static_cast<size_t>(parameters[b].count) * SizeOf(parameters[b].dtype);
      EXPECT_TRUE(a == b || layout.offsets_bytes()[a] < begin || layout.offsets_bytes()[a] >= end);
      EXPECT_LE(end, layout.length_bytes());
    }
  }
}

}  // namespace
}  // namespace covey
