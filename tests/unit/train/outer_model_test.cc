// The replicated model of a method of deltas: DiLoCo's arithmetic, what of a rank's work is
// pending, and what another rank takes over.
#include "core/train/outer_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace covey {
namespace {

constexpr size_t kLine = 8;  // elements of a parameter, with its gap

template <typename T>
DType TypeOf();
template <>
DType TypeOf<float>() {
  return DType::kF32;
}
template <>
DType TypeOf<double>() {
  return DType::kF64;
}

MethodChoice Parse(const std::string& text) {
  MethodChoice choice;
  const Status parsed = ParseMethod(text, &choice);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return choice;
}

// One parameter of one element.
template <typename T>
class Rank1 {
 public:
  explicit Rank1(const std::string& method)
      : layout_({{TypeOf<T>(), 1}}), outer(Parse(method), &layout_) {}

  void Anchor(T model) { outer.Anchor(Bytes(model).data()); }
  T Subtract(T model) {
    std::vector<std::byte> delta(layout_.length_bytes());
    outer.Subtract(Bytes(model).data(), delta.data());
    return Element(delta);
  }
  void Combine(T sum, int64_t deltas, uint64_t own) {
    outer.Combine(Bytes(sum).data(), deltas, own);
  }
  T Adopt() const {
    std::vector<std::byte> model(layout_.length_bytes());
    outer.Adopt(model.data());
    return Element(model);
  }
  std::vector<std::byte> Image() {
    std::vector<std::byte> image;
    for (const std::span<std::byte> array : outer.arrays())
      image.insert(image.end(), array.begin(), array.end());
    return image;
  }

 private:
  std::vector<std::byte> Bytes(T value) const {
    std::vector<std::byte> bytes(layout_.length_bytes());
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  }
  static T Element(const std::vector<std::byte>& bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  TrainerLayout layout_;

 public:
  OuterModel outer;
};

// The example of ops/methods/diloco.cc.
template <typename T>
void CheckExample() {
  Rank1<T> rank("diloco:outer_lr=0.5,outer_momentum=0.5");
  rank.Anchor(10);
  EXPECT_EQ(rank.Subtract(8), 2);
  rank.outer.OnPublished(1);
  EXPECT_EQ(rank.Adopt(), 8) << "no version has its delta: it goes on from its own model";
  rank.Combine(2 + 4, 2, 1);
  EXPECT_EQ(rank.Adopt(), static_cast<T>(7.75));
  EXPECT_EQ(rank.Subtract(static_cast<T>(6.75)), 1);
  rank.outer.OnPublished(2);
  rank.Combine(1 + 2, 2, 2);  // D = 1.5, M = 3, X = 7.75 - 0.5 (1.5 + 1.5)
  EXPECT_EQ(rank.Adopt(), static_cast<T>(6.25));
}

TEST(OuterModelTest, IsSgdWithNesterovMomentum) {
  CheckExample<float>();
  CheckExample<double>();
}

TEST(OuterModelTest, WithoutMomentumAndRateOneItIsTheMeanOfModels) {
  Rank1<double> rank("diloco:outer_lr=1,outer_momentum=0");
  rank.Anchor(10);
  rank.Combine((10 - 8) + (10 - 6), 2, 0);
  EXPECT_EQ(rank.Adopt(), 7);
}

TEST(OuterModelTest, ALateDeltaCountsOnceAndItsRankGoesOnFromIt) {
  Rank1<double> rank("diloco:outer_lr=1,outer_momentum=0");
  rank.Anchor(100);
  EXPECT_EQ(rank.Subtract(90), 10);
  rank.outer.OnPublished(1);
  rank.Combine(4, 1, 0);  // of another rank
  EXPECT_EQ(rank.Adopt(), 100 - 4 - 10);
  EXPECT_EQ(rank.Subtract(80), 6) << "the first ten are pending, and not in it again";
  rank.outer.OnPublished(2);
  rank.Combine(10, 1, 1);
  EXPECT_EQ(rank.Adopt(), 100 - 4 - 10 - 6);
  rank.Combine(6, 1, 2);
  EXPECT_EQ(rank.Adopt(), 100 - 4 - 10 - 6);
}

TEST(OuterModelTest, ManyPendingDeltasAreKeptAsTheirSum) {
  Rank1<float> rank("diloco:outer_lr=1,outer_momentum=0");
  rank.Anchor(0);
  float model = 0;
  for (uint64_t step = 1; step <= 9; ++step) {
    model -= static_cast<float>(step);
    EXPECT_EQ(rank.Subtract(model), static_cast<float>(step));
    rank.outer.OnPublished(step);
    EXPECT_EQ(rank.Adopt(), model);
  }
  rank.Combine(45, 9, 9);
  EXPECT_EQ(rank.Adopt(), -5) << "their mean, and nothing is pending";
}

TEST(OuterModelTest, AnotherRanksArraysAreTakenOver) {
  Rank1<double> donor("diloco:outer_lr=0.5,outer_momentum=0.5");
  Rank1<double> late("diloco:outer_lr=0.5,outer_momentum=0.5");
  donor.Anchor(10);
  late.Anchor(10);
  EXPECT_EQ(late.Subtract(7), 3);
  late.outer.OnPublished(1);
  EXPECT_EQ(late.Subtract(5), 2);
  late.outer.OnPublished(2);
  donor.Combine(3 + 5, 2, 0);
  late.outer.Load(donor.Image(), 1);
  EXPECT_EQ(late.Adopt(), donor.Adopt() - 2) << "its first delta was in a version";
  donor.Combine(2, 1, 0);
  late.Combine(2, 1, 2);
  EXPECT_EQ(late.Adopt(), donor.Adopt()) << "with the same momentum";
}

TEST(OuterModelTest, HalfPrecisionIsRefusedByName) {
  const TrainerLayout layout(
      {{DType::kF32, kLine}, {DType::kF32, 1}, {DType::kBF16, kLine}, {DType::kBF16, 1}});
  const Method& method = *Parse("diloco").method;
  const Status status = OuterModel::Check(method, layout);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("parameter 2 is of bfloat16"), std::string::npos)
      << status.message();
  EXPECT_TRUE(OuterModel::Check(method, TrainerLayout({{DType::kF32, 1}, {DType::kF64, 1}})).ok());
}

}  // namespace
}  // namespace covey
