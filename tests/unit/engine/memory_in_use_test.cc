// Operations in flight that share memory: compared with every pair of tensors, for drawn ones; and
// until when the queue remembers them.
#include "core/engine/memory_in_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "core/engine/tensor_queue.h"

namespace covey {
namespace {

std::array<std::byte, 4096> memory;

Tensor Bytes(size_t begin, size_t count) {
  Tensor tensor;
  tensor.dtype = DType::kU8;
  tensor.shape.ndim = 1;
  tensor.shape.dims[0] = static_cast<int64_t>(count);
  tensor.data = memory.data() + begin;
  return tensor;
}

bool Overlap(const Tensor& a, const Tensor& b) {
  return a.LengthBytes() > 0 && b.LengthBytes() > 0 && a.data < b.data + b.LengthBytes() &&
         b.data < a.data + a.LengthBytes();
}

bool AnyOverlap(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (const Tensor& x : a)
    for (const Tensor& y : b)
      if (Overlap(x, y)) return true;
  return false;
}

bool ConflictSlowly(const Operation& a, const Operation& b) {
  return AnyOverlap(a.outputs, b.outputs) || AnyOverlap(a.outputs, b.inputs) ||
         AnyOverlap(a.inputs, b.outputs);
}

TEST(MemoryInUseTest, FindsWhatComparingEachPairFinds) {
  std::mt19937 rng(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Group group;
    std::array<Operation, 4> operations;
    MemoryInUse in_use;
    std::vector<Operation*> counted;
    for (Operation& operation : operations) {
      operation.group = &group;
      operation.name = std::to_string(&operation - operations.data());
      for (uint64_t count = 1 + rng() % 3; operation.inputs.size() < count;)
        operation.inputs.push_back(Bytes(rng() % 50, rng() % 6));
      if (rng() % 2 == 0) operation.outputs = operation.inputs;
      if (rng() % 4 == 0)
        for (Tensor& output : operation.outputs) output = Bytes(rng() % 50, rng() % 6);
      bool slowly = false;
      for (const Operation* other : counted) slowly |= ConflictSlowly(operation, *other);
      const Operation* found = in_use.ConflictOf(&operation);
      ASSERT_EQ(found != nullptr, slowly) << "round " << round;
      refused += slowly ? 1 : 0;
      if (found != nullptr) {
        EXPECT_TRUE(ConflictSlowly(operation, *found));
        continue;
      }
      in_use.Add(&operation);
      counted.push_back(&operation);
      if (rng() % 4 == 0) {
        in_use.Remove(counted.front());
        counted.erase(counted.begin());
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(MemoryInUseTest, FindsItAmongMany) {
  std::mt19937 rng(2);
  Group group;
  std::array<Operation, 300> operations;
  MemoryInUse in_use;
  std::vector<Operation*> counted;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    Operation& operation = operations[rng() % operations.size()];
    const auto at = std::find(counted.begin(), counted.end(), &operation);
    if (at != counted.end()) {
      in_use.Remove(&operation);
      counted.erase(at);
      continue;
    }
    operation.group = &group;
    operation.name = std::to_string(&operation - operations.data());
    operation.inputs = operation.outputs = {Bytes(rng() % 4000, 1 + rng() % 16)};
    bool slowly = false;
    for (const Operation* other : counted) slowly |= ConflictSlowly(operation, *other);
    const Operation* found = in_use.ConflictOf(&operation);
    ASSERT_EQ(found != nullptr, slowly) << "in turn " << i;
    refused += slowly ? 1 : 0;
    in_use.Remove(&operation);  // as the queue does of what it does not take
    if (found != nullptr) continue;
    ASSERT_EQ(in_use.ConflictOf(&operation), nullptr);
    in_use.Add(&operation);
    counted.push_back(&operation);
  }
  EXPECT_GT(refused, 1000);
}

class QueueMemoryTest : public testing::Test {
 protected:
  Status Submit(const std::string& name, const Tensor& tensor, uint64_t* handle) {
    Operation* operation = queue_.New();
    operation->group = &group_;
    operation->kind = Kind::kAllreduce;
    operation->name = name;
    operation->inputs = operation->outputs = {tensor};
    return queue_.Submit(operation, handle);
  }

  void End(uint64_t handle) {
    std::vector<TensorQueue::Ended> ended = {{queue_.Find(handle), Status::Ok()}};
    queue_.Finish(&ended);
  }

  Group group_;
  TensorQueue queue_;
};

TEST_F(QueueMemoryTest, TheRefusalNamesBoth) {
  uint64_t first = 0, second = 0;
  ASSERT_TRUE(Submit("a", Bytes(0, 8), &first).ok());
  const Status refused = Submit("b", Bytes(4, 8), &second);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("allreduce 'b' uses memory of allreduce 'a'"), std::string::npos)
      << refused.message();
  EXPECT_EQ(queue_.in_flight(), 1u);
  EXPECT_TRUE(Submit("b", Bytes(8, 8), &second).ok()) << "the refused name is not free";
}

TEST_F(QueueMemoryTest, MemoryIsFreeOnceTheEndWasSeen) {
  uint64_t first = 0, second = 0;
  ASSERT_TRUE(Submit("a", Bytes(0, 8), &first).ok());
  { const HeldOperation timed_out(&queue_, first); }
  EXPECT_FALSE(Submit("b", Bytes(0, 8), &second).ok()) << "a wait that timed out saw no end";
  End(first);
  EXPECT_FALSE(Submit("b", Bytes(0, 8), &second).ok()) << "the program cannot know that it ended";
  HeldOperation(&queue_, first).See();
  ASSERT_TRUE(Submit("b", Bytes(0, 8), &second).ok());
  End(second);
  EXPECT_TRUE(queue_.ReleaseIfDone(second));
  ASSERT_TRUE(Submit("c", Bytes(0, 8), &first).ok());
  End(first);
  HeldOperation(&queue_, first).See();
  EXPECT_TRUE(Submit("d", Bytes(0, 8), &second).ok());
}

TEST_F(QueueMemoryTest, OperationsOfOneNameComeOneAfterTheOther) {
  uint64_t first = 0, second = 0;
  ASSERT_TRUE(Submit("a", Bytes(0, 8), &first).ok());
  End(first);
  EXPECT_TRUE(Submit("a", Bytes(0, 8), &second).ok());
  EXPECT_FALSE(Submit("b", Bytes(0, 8), &second).ok());
}

TEST_F(QueueMemoryTest, UnnamedOperationsOfOneGroupComeOneAfterTheOther) {
  uint64_t handle = 0;
  EXPECT_TRUE(Submit("", Bytes(0, 8), &handle).ok());
  EXPECT_TRUE(Submit("", Bytes(0, 8), &handle).ok());
  EXPECT_FALSE(Submit("named", Bytes(0, 8), &handle).ok());
  group_.key = 1;
  EXPECT_TRUE(Submit("", Bytes(8, 8), &handle).ok());
}

}  // namespace
}  // namespace covey
