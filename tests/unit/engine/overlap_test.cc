// Tensors of a request that share memory: one that is listed twice is reduced from a copy, and a
// part that is shared is refused; compared with every pair, for drawn extents.
#include "core/engine/overlap.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace covey {
namespace {

std::array<std::byte, 64> memory;

Tensor Bytes(size_t begin, int64_t count) {
  Tensor tensor;
  tensor.dtype = DType::kU8;
  tensor.shape.ndim = 1;
  tensor.shape.dims[0] = count;
  tensor.data = memory.data() + begin;
  return tensor;
}

Operation* InPlace(const std::vector<Tensor>& tensors, Operation* operation) {
  operation->kind = Kind::kAllreduce;
  operation->inputs = operation->outputs = tensors;
  return operation;
}

TEST(OverlapTest, MovesALaterMentionToACopy) {
  memory.fill(std::byte{7});
  Operation operation;
  InPlace({Bytes(8, 4), Bytes(0, 8), Bytes(8, 4), Bytes(8, 4)}, &operation);
  ASSERT_TRUE(SeparateTensors(&operation).ok());
  EXPECT_EQ(operation.inputs[0].data, memory.data() + 8);
  EXPECT_EQ(operation.inputs[1].data, memory.data());
  ASSERT_EQ(operation.apart.size(), 2u);
  for (size_t i : {2u, 3u}) {
    EXPECT_EQ(operation.inputs[i].data, operation.outputs[i].data);
    EXPECT_NE(operation.inputs[i].data, memory.data() + 8);
    EXPECT_EQ(operation.inputs[i].data[3], std::byte{7});
  }
  EXPECT_NE(operation.inputs[2].data, operation.inputs[3].data);
}

TEST(OverlapTest, ReadsOneInputTwiceForTwoOutputs) {
  Operation operation;
  InPlace({Bytes(0, 8), Bytes(0, 8)}, &operation);
  operation.outputs = {Bytes(16, 8), Bytes(24, 8)};
  EXPECT_TRUE(SeparateTensors(&operation).ok());
  EXPECT_TRUE(operation.apart.empty());
}

TEST(OverlapTest, NamesAnOutputThatIsTheInputOfAnother) {
  Operation operation;
  InPlace({Bytes(0, 8), Bytes(8, 8)}, &operation);
  operation.outputs = {Bytes(16, 8), Bytes(4, 8)};
  EXPECT_NE(SeparateTensors(&operation).message().find("input and output 0 and 1"),
            std::string::npos);
}

TEST(OverlapTest, RefusesATensorTwiceOnADevice) {
  Operation operation;
  InPlace({Bytes(0, 8), Bytes(0, 8)}, &operation);
  for (Tensor* t : {&operation.inputs[0], &operation.inputs[1]}) t->device = DeviceType::kCuda;
  EXPECT_NE(SeparateTensors(&operation).message().find("list it once"), std::string::npos);
}

TEST(OverlapTest, RefusesWhateverSharesAPart) {
  std::mt19937 rng(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<Tensor> tensors;
    for (size_t count = 2 + rng() % 4; tensors.size() < count;)
      tensors.push_back(Bytes(rng() % 40, rng() % 8));
    bool partly = false;
    size_t twice = 0;
    for (size_t j = 0; j < tensors.size(); ++j) {
      bool again = false;
      for (size_t i = 0; i < j; ++i) {
        const Tensor &a = tensors[i], &b = tensors[j];
        const bool same = a.data == b.data && a.LengthBytes() == b.LengthBytes();
        const bool meet = a.LengthBytes() > 0 && b.LengthBytes() > 0 &&
                          a.data < b.data + b.LengthBytes() && b.data < a.data + a.LengthBytes();
        partly |= meet && !same;
        again |= meet && same;
      }
      twice += again;
    }
    Operation operation;
    EXPECT_EQ(SeparateTensors(InPlace(tensors, &operation)).ok(), !partly) << round;
    EXPECT_TRUE(partly || operation.apart.size() == twice) << round;
  }
}

}  // namespace
}  // namespace covey
