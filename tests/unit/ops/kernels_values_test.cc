// Goal: the kernels compute what kernels-K1 to kernels-K6 of kernels.h promise. Method: every
// kernel, the reference included, against values worked out by hand; half precision for every bit
// pattern and around every point where rounding turns.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/kernels.h"

namespace covey {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
T ReduceOne(const Kernels& kernels, const Reduction& reduction, std::vector<T> values) {
  std::vector<const std::byte*> inputs;
  for (const T& value : values) inputs.push_back(reinterpret_cast<const std::byte*>(&value));
  T result{};
  std::vector<std::byte*> outputs = {reinterpret_cast<std::byte*>(&result)};
  kernels.reduce(reduction, inputs, outputs, 1, Stores::kCached);
  return result;
}

uint16_t HalfOf(const Kernels& kernels, DType dtype, float value) {
  uint16_t half = 0;
  kernels.finish({dtype, Op::kSum}, reinterpret_cast<const std::byte*>(&value),
                 reinterpret_cast<std::byte*>(&half), 1);
  return half;
}

TEST(Kernels, Float16RoundsToNearestEven) {
  for (const Kernels* k : AllKernels()) {
    const auto half = [k](double v) { return HalfOf(*k, DType::kF16, static_cast<float>(v)); };
    EXPECT_EQ(half(1.0), 0x3c00);
    EXPECT_EQ(half(-2.0), 0xc000);
    EXPECT_EQ(half(65504), 0x7bff);
    EXPECT_EQ(half(65519.99), 0x7bff);
    EXPECT_EQ(half(65520), 0x7c00) << "half way to 2^16 rounds to infinity";
    EXPECT_EQ(half(-1e30), 0xfc00);
    EXPECT_EQ(half(1 + 1.0 / 2048), 0x3c00) << "a tie goes to the even neighbour";
    EXPECT_EQ(half(1 + 3.0 / 2048), 0x3c02);
    EXPECT_EQ(half(std::ldexp(1, -24)), 0x0001);
    EXPECT_EQ(half(std::ldexp(1, -25)), 0x0000);
    EXPECT_EQ(half(std::ldexp(3, -25)), 0x0002);
    EXPECT_EQ(half(std::ldexp(1023.5, -24)), 0x0400) << "a subnormal rounds up to a normal";
    EXPECT_EQ(half(std::nan("")), 0x7e00);
    EXPECT_EQ(half(-0.0), 0x8000);
  }
}

TEST(Kernels, Bfloat16RoundsToNearestEven) {
  for (const Kernels* k : AllKernels()) {
    const auto half = [k](uint32_t bits) {
      return HalfOf(*k, DType::kBF16, std::bit_cast<float>(bits));
    };
    EXPECT_EQ(half(0x3f808000), 0x3f80) << "a tie goes to the even neighbour";
    EXPECT_EQ(half(0x3f818000), 0x3f82);
    EXPECT_EQ(half(0x3f808001), 0x3f81);
    EXPECT_EQ(half(0x7f7fffff), 0x7f80);
    EXPECT_EQ(half(0xff800000), 0xff80);
    EXPECT_EQ(half(0x7f800001), 0x7fc0);
    EXPECT_EQ(half(0xffffffff), 0x7fc0);
    EXPECT_EQ(half(0x00008000), 0x0000);
    EXPECT_EQ(half(0x00018000), 0x0002);
  }
}

// Every half, and next to each the floats where rounding turns.
TEST(Kernels, HalfPrecisionEqualsScalarForEveryBitPattern) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const auto* input = reinterpret_cast<const std::byte*>(halves.data());
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<float> wide(65536);
    auto* wide_bytes = reinterpret_cast<std::byte*>(wide.data());
    ScalarKernels().begin({dtype, Op::kSum}, input, wide_bytes, 65536);
    std::vector<float> turns;
    for (float value : wide) {
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      const uint32_t tie = dtype == DType::kF16 ? 0x1000 : 0x8000;
      for (uint32_t near : {bits, bits + tie - 1, bits + tie, bits + tie + 1}) {
        turns.push_back(std::bit_cast<float>(near));
      }
    }
    Bytes expected(turns.size() * 2);
    const auto* turn_bytes = reinterpret_cast<const std::byte*>(turns.data());
    ScalarKernels().finish({dtype, Op::kSum}, turn_bytes, expected.data(), turns.size());
    for (const Kernels* k : AllKernels()) {
      std::vector<float> widened(65536);
      k->begin({dtype, Op::kSum}, input, reinterpret_cast<std::byte*>(widened.data()), 65536);
      EXPECT_EQ(std::memcmp(widened.data(), wide.data(), 65536 * sizeof(float)), 0) << k->name;
      Bytes narrowed(expected.size());
      k->finish({dtype, Op::kSum}, turn_bytes, narrowed.data(), turns.size());
      EXPECT_EQ(narrowed, expected) << k->name;
    }
  }
}

TEST(Kernels, HalfPrecisionIsRoundedOnce) {
  for (const Kernels* k : AllKernels()) {
    // 2048 + 1 + 1: rounding after each addition would stay at 2048.
    const Reduction sum = {DType::kF16, Op::kSum, 1, 1};
    EXPECT_EQ(ReduceOne<uint16_t>(*k, sum, {0x6800, 0x3c00, 0x3c00}), 0x6801) << k->name;
    // 65504 + 65504 overflows half, the average does not.
    const Reduction average = {DType::kF16, Op::kSum, 1, 0.5};
    EXPECT_EQ(ReduceOne<uint16_t>(*k, average, {0x7bff, 0x7bff}), 0x7bff) << k->name;
  }
}

// The product with 1/7 gives -100.0000076 and 0.99999994.
TEST(Kernels, AveragesAreQuotientsNotProducts) {
  for (const Kernels* k : AllKernels()) {
    const Reduction average = {.dtype = DType::kF32, .op = Op::kSum, .divisor = 7};
    EXPECT_EQ(ReduceOne<float>(*k, average, std::vector<float>(7, -100)), -100.0f) << k->name;
    const Reduction of_49 = {.dtype = DType::kF64, .op = Op::kSum, .divisor = 49};
    EXPECT_EQ(ReduceOne<double>(*k, of_49, std::vector<double>(49, 1)), 1.0) << k->name;
  }
}

// The quotient is exact for every sum, also where a double would round it.
TEST(Kernels, AveragesOfIntegersAreTruncatedQuotients) {
  for (const Kernels* k : AllKernels()) {
    const auto by = [](DType dtype, int32_t divisor) {
      return Reduction{.dtype = dtype, .op = Op::kSum, .divisor = divisor};
    };
    for (int32_t n : {2, 3, 7, 49, 200, 1024}) {
      for (const int64_t mean : {int64_t{1}, int64_t{255}, (int64_t{1} << 52) + 1}) {
        const int64_t sum = mean * n + n - 1;
        ASSERT_EQ(ReduceOne<int64_t>(*k, by(DType::kI64, n), {sum}), mean) << k->name << ", " << n;
        ASSERT_EQ(ReduceOne<int64_t>(*k, by(DType::kI64, n), {-sum}), -mean) << k->name;
      }
    }
    EXPECT_EQ(ReduceOne<int8_t>(*k, by(DType::kI8, 200), {-128}), 0) << k->name;
    EXPECT_EQ(ReduceOne<uint64_t>(*k, by(DType::kU64, 1), {UINT64_MAX}), UINT64_MAX) << k->name;
    EXPECT_EQ(ReduceOne<uint64_t>(*k, by(DType::kU64, 3), {UINT64_MAX}), UINT64_MAX / 3) << k->name;
  }
}

TEST(Kernels, SumsInTheOrderGiven) {
  for (const Kernels* k : AllKernels()) {
    const Reduction sum = {DType::kF32, Op::kSum, 1, 1};
    EXPECT_EQ(ReduceOne<float>(*k, sum, {1e8f, 1, -1e8f, 1}), 1.0f) << k->name;
  }
}

TEST(Kernels, MinAndMaxOfNanAreNanAndOfEqualsTheLater) {
  const float nan = std::bit_cast<float>(0xffc12345u);
  for (const Kernels* k : AllKernels()) {
    for (Op op : {Op::kMin, Op::kMax}) {
      const Reduction r = {DType::kF32, op, 1, 1};
      for (const auto& values : {std::vector<float>{nan, 1, 2}, {1, nan, 2}, {1, 2, nan}, {nan}}) {
        EXPECT_EQ(std::bit_cast<uint32_t>(ReduceOne(*k, r, values)), 0x7fc00000u) << k->name;
      }
      EXPECT_TRUE(std::signbit(ReduceOne<float>(*k, r, {0.0f, -0.0f}))) << k->name;
      EXPECT_FALSE(std::signbit(ReduceOne<float>(*k, r, {-0.0f, 0.0f}))) << k->name;
    }
  }
}

TEST(Kernels, IntegersWrapAndScaledIntegersTruncateAndSaturate) {
  const double nan = std::nan("");
  for (const Kernels* k : AllKernels()) {
    EXPECT_EQ(ReduceOne<int8_t>(*k, {DType::kI8, Op::kSum, 1, 1}, {127, 1}), -128);
    EXPECT_EQ(ReduceOne<uint8_t>(*k, {DType::kU8, Op::kProduct, 1, 1}, {16, 17}), 16);
    EXPECT_EQ(ReduceOne<int64_t>(*k, {DType::kI64, Op::kSum, 1, 1}, {INT64_MAX, 2}), INT64_MIN + 1);
    EXPECT_EQ(ReduceOne<int32_t>(*k, {DType::kI32, Op::kSum, 1, 0.5}, {-4, -3}), -3);
    EXPECT_EQ(ReduceOne<int32_t>(*k, {DType::kI32, Op::kMax, 1.9, 1}, {-2, -3}), -3);
    EXPECT_EQ(ReduceOne<int8_t>(*k, {DType::kI8, Op::kSum, 100, 1}, {-2}), -128);
    EXPECT_EQ(ReduceOne<uint8_t>(*k, {DType::kU8, Op::kSum, 1, -1}, {2}), 0);
    EXPECT_EQ(ReduceOne<int64_t>(*k, {DType::kI64, Op::kSum, 1, 4}, {INT64_MAX}), INT64_MAX);
    EXPECT_EQ(ReduceOne<int32_t>(*k, {DType::kI32, Op::kSum, 1, nan}, {7}), 0);
  }
}

TEST(KernelsDeathTest, RefuseBoolAndAverage) {
  for (const Kernels* k : AllKernels()) {
    EXPECT_DEATH(ReduceOne<uint8_t>(*k, {DType::kBool, Op::kSum, 1, 1}, {1}),
                 "no arithmetic on bool");
    EXPECT_DEATH(ReduceOne<float>(*k, {DType::kF32, Op::kAverage, 1, 1}, {1}),
                 "an average is a sum with a divisor");
  }
}

}  // namespace
}  // namespace covey
