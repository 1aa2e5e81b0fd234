// Goal: the card's arithmetic of one element is the CPU's, bit for bit: turning half precision both
// ways, combining, scaling, what a NaN becomes.
// Method: ops/devices/cuda/element.h, which the card's kernels are made of, run here against the
// scalar reference: all bits of float16 and bfloat16, all upper halves of float32 with the lower
// halves at which rounding turns, and random ones. Another seed: --gtest_random_seed=N.
#include "ops/devices/cuda/element.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "core/base/kernels.h"

namespace covey {
namespace {

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<cuda::F16> {
  static constexpr DType kValue = DType::kF16;
};
template <>
struct DTypeOf<cuda::BF16> {
  static constexpr DType kValue = DType::kBF16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType kValue = DType::kU8;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType kValue = DType::kI8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType kValue = DType::kI64;
};

template <class T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// What the reference makes of two contributions.
template <class T>
T Reference(const Reduction& r, T a, T b) {
  const auto* first = reinterpret_cast<const std::byte*>(&a);
  const auto* second = reinterpret_cast<const std::byte*>(&b);
  const std::array<const std::byte*, 2> inputs = {first, second};
  T result;
  auto* output = reinterpret_cast<std::byte*>(&result);
  ScalarKernels().reduce(r, inputs, {&output, 1}, 1, Stores::kCached);
  return result;
}

template <unsigned kOp, class T>
T Ours(const Reduction& r, T a, T b) {
  const auto sum = cuda::Combine<kOp>(cuda::Scale(cuda::Read(a), r.prescale),
                                      cuda::Scale(cuda::Read(b), r.prescale));
  return cuda::Write<T>(cuda::Canonical(cuda::Divide(cuda::Scale(sum, r.postscale), r.divisor)));
}

template <class T>
void ExpectSame(T a, T b, double prescale, double postscale, int32_t divisor = 1) {
  const auto check = [&](Op op, const auto& ours) {
    const Reduction r = {DTypeOf<T>::kValue, op, prescale, postscale, divisor};
    ASSERT_EQ(BitsOf(ours(r, a, b)), BitsOf(Reference(r, a, b)))
        << NameOf(r.dtype) << " " << NameOf(op) << " of " << std::hex << BitsOf(a) << " and "
        << BitsOf(b) << std::dec << " scaled by " << prescale << " and " << postscale
        << ", divided by " << divisor;
  };
  check(Op::kSum, Ours<cuda::kSum, T>);
  check(Op::kMin, Ours<cuda::kMin, T>);
  check(Op::kMax, Ours<cuda::kMax, T>);
  check(Op::kProduct, Ours<cuda::kProduct, T>);
}

TEST(ElementTest, OpsHaveTheNumbersOfTheCore) {
  EXPECT_EQ(cuda::kSum, static_cast<unsigned>(Op::kSum));
  EXPECT_EQ(cuda::kMin, static_cast<unsigned>(Op::kMin));
  EXPECT_EQ(cuda::kMax, static_cast<unsigned>(Op::kMax));
  EXPECT_EQ(cuda::kProduct, static_cast<unsigned>(Op::kProduct));
}

template <class T>
void WidensAll() {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T half = {static_cast<uint16_t>(bits)};
    float expected = 0;
    ScalarKernels().begin({DTypeOf<T>::kValue, Op::kSum}, reinterpret_cast<const std::byte*>(&half),
                          reinterpret_cast<std::byte*>(&expected), 1);
    const float actual = cuda::Canonical(cuda::Widen(half));
    ASSERT_EQ(BitsOf(actual), BitsOf(expected)) << std::hex << bits;
  }
}

TEST(ElementTest, WidensAllBits) {
  WidensAll<cuda::F16>();
  WidensAll<cuda::BF16>();
}

template <class T>
void NarrowsAll() {
  std::mt19937 rng(testing::UnitTest::GetInstance()->random_seed() + 1);
  std::vector<uint32_t> lower = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff, 0x2fff, 0x3000,
                                 0x3001, 0x7fff, 0x8000, 0x8001, 0xefff, 0xf000, 0xf001, 0xffff};
  for (int i = 0; i < 4; ++i) lower.push_back(rng() % 0x10000);
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t low : lower) {
      const float value = cuda::FloatOf(upper << 16 | low);
      T expected;
      ScalarKernels().finish({DTypeOf<T>::kValue, Op::kSum},
                             reinterpret_cast<const std::byte*>(&value),
                             reinterpret_cast<std::byte*>(&expected), 1);
      const T actual = cuda::Write<T>(cuda::Canonical(value));
      ASSERT_EQ(actual.bits, expected.bits) << std::hex << (upper << 16 | low);
    }
  }
}

TEST(ElementTest, NarrowsWhereRoundingTurns) {
  NarrowsAll<cuda::F16>();
  NarrowsAll<cuda::BF16>();
}

template <class T>
void CombinesAll() {
  std::mt19937 rng(testing::UnitTest::GetInstance()->random_seed() + 1);
  constexpr uint16_t kOthers[] = {0,      0x8000, 1,      0x3c00, 0x3f80, 0x7c00, 0xfc00,
                                  0x7e01, 0x7f80, 0xff80, 0x7fc1, 0xffa0, 0x7bff, 0x0400};
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T a = {static_cast<uint16_t>(bits)};
    ExpectSame<T>(a, {kOthers[bits % std::size(kOthers)]}, 1, 1);
    ExpectSame<T>({kOthers[rng() % std::size(kOthers)]}, a, 0.7, 1.0 / 3);
    ExpectSame<T>(a, {static_cast<uint16_t>(rng())}, 1, 0.5);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ElementTest, CombinesAllBitsOfHalfPrecision) {
  CombinesAll<cuda::F16>();
  CombinesAll<cuda::BF16>();
}

template <class T>
void CombinesRandom() {
  std::mt19937_64 rng(testing::UnitTest::GetInstance()->random_seed() + 1);
  constexpr double kScales[] = {
      1, 1.0 / 3, -1.5, 1e3, 1e300, 0, std::numeric_limits<double>::quiet_NaN()};
  for (int i = 0; i < 100'000; ++i) {
    uint64_t bits[2] = {rng(), rng()};
    // Now and then only the sign and the exponent, or a NaN's bits, or small numbers.
    if (i % 5 == 0) bits[i % 2] &= ~uint64_t{0} << (sizeof(T) * 4);
    if (i % 7 == 0) bits[i % 2] |= sizeof(T) == 8 ? uint64_t{0x7ff} << 52 : uint64_t{0xff} << 23;
    if (i % 11 == 0) bits[0] = bits[1] = rng() % 3;
    T values[2];
    for (int k = 0; k < 2; ++k) std::memcpy(&values[k], &bits[k], sizeof(T));
    ExpectSame<T>(values[0], values[1], 1, 1);
    ExpectSame<T>(values[0], values[1], kScales[rng() % 7], kScales[rng() % 7]);
    ExpectSame<T>(values[0], values[1], 1, 1, static_cast<int32_t>(1 + rng() % 300));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ElementTest, CombinesRandomBitsOfTheOthers) {
  CombinesRandom<float>();
  CombinesRandom<double>();
  CombinesRandom<uint8_t>();
  CombinesRandom<int8_t>();
  CombinesRandom<int32_t>();
  CombinesRandom<int64_t>();
}

}  // namespace
}  // namespace covey
