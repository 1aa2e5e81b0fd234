// NaN and infinite numbers are found wherever they are, in every type, and nothing else is.
// Method: drawn places, lengths around the blocks, memory that is not aligned.
#include "core/base/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261122;

template <typename Number>
void Check(DType dtype) {
  using Limits = std::numeric_limits<Number>;
  const Number bad[] = {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::infinity(),
                        -Limits::infinity(), Limits::signaling_NaN()};
  const Number good[] = {0, -0.0, 1, Limits::max(), Limits::lowest(), Limits::denorm_min()};
  Rng rng(kSeed);
  for (const size_t count : {0, 1, 7, 1023, 1024, 1025, 4096, 5000}) {
    for (size_t offset : {0, 1, 3}) {
      std::vector<std::byte> memory(count * sizeof(Number) + offset);
      size_t wanted = 0, first = count;
      for (size_t i = 0; i < count; ++i) {
        const bool is_bad = rng.Below(100) == 0;
        const Number number = is_bad ? bad[rng.Below(5)] : good[rng.Below(6)];
        std::memcpy(memory.data() + offset + i * sizeof(Number), &number, sizeof(Number));
        if (is_bad && wanted++ == 0) first = i;
      }
      EXPECT_EQ(CountNotFinite(dtype, memory.data() + offset, count), wanted) << count;
      EXPECT_EQ(FirstNotFinite(dtype, memory.data() + offset, count), first) << count;
    }
  }
}

TEST(FiniteTest, CountsWhatIsNotFinite) {
  Check<float>(DType::kF32);
  Check<double>(DType::kF64);
}

// All 65536 of each: five and eight bits of exponent.
TEST(FiniteTest, HalvesAreThoseWithAFullExponent) {
  for (const auto& [dtype, mantissa_bits] : {std::pair(DType::kF16, 10), {DType::kBF16, 7}}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto word = static_cast<uint16_t>(bits);
      const uint32_t full = (1u << (15 - mantissa_bits)) - 1;
      const bool is_bad = (bits >> mantissa_bits & full) == full;
      ASSERT_EQ(CountNotFinite(dtype, reinterpret_cast<const std::byte*>(&word), 1), is_bad)
          << bits;
    }
  }
}

TEST(FiniteTest, WholeNumbersAreFinite) {
  const std::vector<std::byte> ones(64, std::byte{0xff});
  for (DType dtype : {DType::kU8, DType::kI8, DType::kI32, DType::kI64, DType::kBool})
    EXPECT_EQ(CountNotFinite(dtype, ones.data(), 8), 0u);
}

// A whole block of them: a count does not wrap.
TEST(FiniteTest, AllOfThem) {
  const std::vector<std::byte> ones(100000 * 8, std::byte{0xff});
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64})
    EXPECT_EQ(CountNotFinite(dtype, ones.data(), 100000), 100000u);
}

}  // namespace
}  // namespace covey
