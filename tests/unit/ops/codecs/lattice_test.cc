// Goal: the lattice codec is exact, unbiased and detected to be wrong just where its bounds say.
// Method: drawn elements at distances in units of the step; the formula of the bound; every chunk.
#include "ops/codecs/lattice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr float kStep = 0.01f;
constexpr int kBits[] = {2, 3, 4, 5, 7, 8, 11, 12, 16};

double Uniform(Rng* rng) { return static_cast<double>(rng->Next() >> 11) * 0x1p-53; }

std::vector<float> Drawn(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(count);
  for (float& one : x) one = static_cast<float>(4 * Uniform(&rng) - 2);
  return x;
}

// References that are `far` steps away, up or down.
std::vector<float> Apart(const std::vector<float>& x, double far, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> y = x;
  for (float& one : y)
    one += static_cast<float>((rng.Percent(50) ? far : -far) * static_cast<double>(kStep));
  return y;
}

std::vector<std::byte> Encoded(const LatticeForm& form, const std::vector<float>& x, uint64_t seed,
                               float step = kStep) {
  std::vector<std::byte> bytes(form.EncodedBytes(x.size()));
  EncodeLattice(BestKernels(), form, step, x, seed, bytes.data());
  return bytes;
}

TEST(LatticeTest, WithinReachItIsRightToAStep) {
  for (const int bits : kBits)
    for (const size_t count : {1u, 7u, 64u, 100u, 333u}) {
      const LatticeForm form{.bits = bits, .chunk_elems = 64};
      const std::vector<float> x = Drawn(count, kSeed + count);
      // A thousandth less, because references are rounded to float32.
      const std::vector<float> y = Apart(x, form.Reach(1) * 0.999, kSeed);
      const std::vector<std::byte> bytes = Encoded(form, x, kSeed);
      std::vector<float> decoded(count);
      for (size_t chunk = 0; chunk < form.Chunks(count); ++chunk)
        EXPECT_TRUE(DecodeLattice(BestKernels(), form, bytes.data(), y, chunk, decoded).is_right)
            << bits;
      for (size_t i = 0; i < count; ++i)
        EXPECT_LT(std::abs(static_cast<double>(decoded[i]) - static_cast<double>(x[i])),
                  static_cast<double>(kStep) * 1.0001)
            << bits << " bits";
    }
}

TEST(LatticeTest, BeyondItEveryElementIsWrongAndThatIsDetected) {
  for (const int bits : kBits) {
    const LatticeForm form{.bits = bits, .chunk_elems = 64};
    const std::vector<float> x = Drawn(256, kSeed);
    const std::vector<float> y = Apart(x, form.Reach(1) + 3.001, kSeed);  // (q/2 + 1.5) steps
    const std::vector<std::byte> bytes = Encoded(form, x, kSeed);
    std::vector<float> decoded(x.size());
    for (size_t chunk = 0; chunk < 4; ++chunk)
      EXPECT_FALSE(DecodeLattice(BestKernels(), form, bytes.data(), y, chunk, decoded).is_right)
          << bits;
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_GT(std::abs(static_cast<double>(decoded[i]) - static_cast<double>(x[i])),
                static_cast<double>(kStep) * (std::pow(2, bits) - 1.001));
  }
}

TEST(LatticeTest, OneWrongElementIsDetectedInItsChunkAlone) {
  const LatticeForm form{.bits = 8, .chunk_elems = 64};
  const std::vector<float> x = Drawn(640, kSeed);
  const std::vector<std::byte> bytes = Encoded(form, x, kSeed);
  for (size_t at = 0; at < x.size(); at += 13) {
    std::vector<float> y = Apart(x, 20, kSeed), decoded(x.size());
    y[at] += 130 * kStep * (y[at] > x[at] ? 1.0f : -1.0f);
    for (size_t chunk = 0; chunk < 10; ++chunk)
      EXPECT_EQ(DecodeLattice(BestKernels(), form, bytes.data(), y, chunk, decoded).is_right,
                chunk != at / 64);
  }
}

TEST(LatticeTest, AnyBitThatIsWrongIsDetected) {
  const LatticeForm form{.bits = 5, .chunk_elems = 64};
  const std::vector<float> x = Drawn(64, kSeed);
  std::vector<float> decoded(64);
  std::vector<std::byte> bytes = Encoded(form, x, kSeed);
  for (size_t bit = 64; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(DecodeLattice(BestKernels(), form, bytes.data(), x, 0, decoded).is_right) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(DecodeLattice(BestKernels(), form, bytes.data(), x, 0, decoded).is_right);
}

// The mean of 300,000 errors, each less than a step with a variance of a quarter step squared at
// most: five standard deviations.
TEST(LatticeTest, ItIsUnbiased) {
  constexpr int kTimes = 3000;
  for (const int bits : {4, 8}) {
    const LatticeForm form{.bits = bits, .chunk_elems = 64};
    const std::vector<float> x = Drawn(100, kSeed), y = Apart(x, 3, kSeed);
    std::vector<float> decoded(x.size());
    double all = 0;
    std::vector<double> each(x.size());
    for (uint64_t seed = 0; seed < kTimes; ++seed) {
      const std::vector<std::byte> bytes = Encoded(form, x, Rng(seed).Next());
      for (size_t chunk = 0; chunk < 2; ++chunk)
        ASSERT_TRUE(DecodeLattice(BestKernels(), form, bytes.data(), y, chunk, decoded).is_right);
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = static_cast<double>(decoded[i]) - static_cast<double>(x[i]);
        all += error;
        each[i] += error;
      }
    }
    EXPECT_LT(std::abs(all / (kTimes * 100)),
              5 * 0.5 * static_cast<double>(kStep) / std::sqrt(kTimes * 100));
    for (const double one : each)
      EXPECT_LT(std::abs(one / kTimes), 5 * 0.5 * static_cast<double>(kStep) / std::sqrt(kTimes));
  }
}

TEST(LatticeTest, WhatIsNotFiniteOrTooLargeIsNeverDecoded) {
  const LatticeForm form{.bits = 8, .chunk_elems = 64};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e20f}) {
    std::vector<float> x = Drawn(128, kSeed), decoded(128);
    const std::vector<float> y = x;
    x[70] = bad;
    const std::vector<std::byte> bytes = Encoded(form, x, kSeed);
    EXPECT_TRUE(DecodeLattice(BestKernels(), form, bytes.data(), y, 0, decoded).is_right);
    EXPECT_FALSE(DecodeLattice(BestKernels(), form, bytes.data(), y, 1, decoded).is_right);
    EXPECT_FALSE(DecodeLattice(BestKernels(), form, bytes.data(), x, 1, decoded).is_right);
  }
  std::vector<float> x = Drawn(64, kSeed), y = x, decoded(64);
  y[5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::byte> bytes = Encoded(form, x, kSeed);
  EXPECT_FALSE(DecodeLattice(BestKernels(), form, bytes.data(), y, 0, decoded).is_right);
}

TEST(LatticeTest, WritesItsBytesAndTheSameOnesAgain) {
  for (const int bits : kBits)
    for (const size_t count : {1u, 9u, 64u, 65u, 200u}) {
      const LatticeForm form{.bits = bits, .chunk_elems = 64};
      const std::vector<float> x = Drawn(count, kSeed);
      std::vector<std::byte> bytes(form.EncodedBytes(count) + 8, std::byte{0x5a});
      EncodeLattice(BestKernels(), form, kStep, x, kSeed, bytes.data());
      for (size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[bytes.size() - 8 + i], std::byte{0x5a});
      bytes.erase(bytes.end() - 8, bytes.end());
      EXPECT_EQ(bytes, Encoded(form, x, kSeed));
      if (count == 200) {
        EXPECT_NE(bytes, Encoded(form, x, kSeed + 1));
      }
    }
  EXPECT_EQ((LatticeForm{.bits = 8, .chunk_elems = 1024}.EncodedBytes(2048)), 2u * (1024 + 16));
}

// Whole numbers of steps are their own codes. The test reads them bit by bit.
TEST(LatticeTest, CodesFollowEachOtherBitByBit) {
  for (int bits = 2; bits <= 16; ++bits) {
    const auto width = static_cast<size_t>(bits);
    for (const size_t count : {1u, 7u, 8u, 13u, 64u}) {
      const LatticeForm form{.bits = bits, .chunk_elems = 64};
      Rng rng(kSeed + count);
      std::vector<float> x(count);
      for (float& one : x) one = static_cast<float>(rng.Next() % 100000);
      const std::vector<std::byte> bytes = Encoded(form, x, kSeed, 1);
      for (size_t at = 0; at < count * width; ++at) {
        const auto number = static_cast<uint64_t>(x[at / width]);
        const auto byte = std::to_integer<uint64_t>(bytes[form.ChunkBytes(0) + at / 8]);
        ASSERT_EQ(byte >> (at % 8) & 1, number >> (at % width) & 1) << bits << " bits, " << at;
      }
    }
  }
}

TEST(LatticeTest, EveryInstructionSetMakesTheSameBits) {
  for (const int bits : kBits) {
    const LatticeForm form{.bits = bits, .chunk_elems = 64};
    const std::vector<float> x = Drawn(200, kSeed), y = Apart(x, 0.4, kSeed);
    const std::vector<std::byte> bytes = Encoded(form, x, kSeed);
    std::vector<float> decoded(x.size()), other = y;
    for (size_t chunk = 0; chunk < form.Chunks(x.size()); ++chunk)
      DecodeLattice(ScalarKernels(), form, bytes.data(), y, chunk, decoded);
    for (const Kernels* kernels : AllKernels()) {
      std::vector<std::byte> same(bytes.size());
      EncodeLattice(*kernels, form, kStep, x, kSeed, same.data());
      EXPECT_EQ(same, bytes) << kernels->name;
      other = y;  // In place: the references become what was decoded.
      for (size_t chunk = 0; chunk < form.Chunks(x.size()); ++chunk)
        DecodeLattice(*kernels, form, bytes.data(), other, chunk, other);
      EXPECT_EQ(other, decoded) << kernels->name;
    }
  }
}

// Two models that come nearer: the step follows them, and a sudden distance is caught up with.
TEST(LatticeTest, TheStepFollowsTheDistance) {
  const LatticeForm form{.bits = 8, .chunk_elems = 256};
  ReferenceStep step(form.Reach(1));
  const std::vector<float> x = Drawn(256, kSeed);
  std::vector<float> decoded(256);
  int wrong = 0;
  const auto meet = [&](double apart, uint64_t seed) {
    Rng rng(seed);
    std::vector<float> y = x;
    for (float& one : y) one += static_cast<float>((2 * Uniform(&rng) - 1) * apart);
    const std::vector<std::byte> bytes = Encoded(form, x, seed, step.step());
    const ReferenceChunk chunk = DecodeLattice(BestKernels(), form, bytes.data(), y, 0, decoded);
    wrong += chunk.is_right ? 0 : 1;
    double whole = 0;  // as it is seen when they are sent whole
    for (size_t i = 0; i < x.size(); ++i)
      whole = std::max(whole, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
    step.OnDistance(chunk.is_right ? chunk.distance : whole);
    return chunk.is_right;
  };
  for (int i = 0; !meet(0.1, kSeed); ++i) ASSERT_LT(i, 1);
  wrong = 0;
  double apart = 0.1;
  for (uint64_t i = 0; i < 500; ++i, apart *= 0.99) meet(apart, i);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(form.Reach(static_cast<double>(step.step())), 1.9 * apart);
  EXPECT_LE(form.Reach(static_cast<double>(step.step())), 5 * apart);
  for (int i = 0; !meet(0.1, kSeed); ++i) ASSERT_LT(i, 1);
}

}  // namespace
}  // namespace covey
