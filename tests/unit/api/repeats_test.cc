// A request that is taken for the one before is valid, and Validate would make the same of it.
//
// Method: random changes of a valid request, of those that make it wrong and of others; whatever
// Repeats takes is compared with what Validate makes of it.
#include "core/api/repeats.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "core/api/covey_neighbors.h"
#include "core/api/validate.h"
#include "core/base/rng.h"

namespace covey {
namespace {

constexpr int kSeeds = 5000;

const covey_neighbors kAlone = {.struct_size = sizeof(covey_neighbors), .own_weight = 1};
const int64_t kSplits[] = {1, 2, 0};

// A request and the memory that it speaks of.
struct Sample {
  std::array<float, 64> memory{};
  std::array<int64_t, 2> shape{3, 2};
  std::array<int64_t, 2> other_shape{3, 2};
  std::string name = "loss";
  covey_tensor input = COVEY_INIT(covey_tensor);
  covey_tensor output = COVEY_INIT(covey_tensor);
  covey_request request = COVEY_INIT(covey_request);

  Sample() {
    for (covey_tensor* tensor : {&input, &output}) {
      tensor->dtype = COVEY_FLOAT32;
      tensor->ndim = 2;
      tensor->shape = tensor == &input ? shape.data() : other_shape.data();
      tensor->data = memory.data();
    }
    request.kind = COVEY_ALLREDUCE;
    request.num_tensors = 1;
    request.inputs = &input;
    request.waits = 1;
    request.name = name.c_str();
  }
  Sample(const Sample&) = delete;
};

using Change = std::function<void(Sample*)>;

void NoCallback(void*, covey_handle, const covey_error*) {}

const Change kChanges[] = {
    [](Sample* s) { s->input.data = s->memory.data() + 16; },
    [](Sample* s) { s->request.outputs = &s->output; },
    [](Sample* s) { s->output.data = s->memory.data() + 3; },  // overlaps
    [](Sample* s) { s->output.data = s->memory.data() + 40; },
    [](Sample* s) { s->input.data = nullptr; },
    [](Sample* s) { s->request.op = COVEY_AVERAGE; },
    [](Sample* s) { s->request.op = COVEY_MAX; },
    [](Sample* s) { s->request.op = static_cast<covey_op>(9); },
    [](Sample* s) { s->request.kind = COVEY_BROADCAST; },
    [](Sample* s) { s->request.kind = COVEY_ALLGATHER; },
    [](Sample* s) { s->request.prescale = 1; },  // as 0
    [](Sample* s) { s->request.postscale = 0.5; },
    [](Sample* s) { s->request.prescale = std::numeric_limits<double>::quiet_NaN(); },
    [](Sample* s) { s->request.callback = NoCallback; },
    [](Sample* s) { s->request.waits = 0; },
    [](Sample* s) { s->request.codec = "int8"; },
    [](Sample* s) { s->request.codec = ""; },
    [](Sample* s) { s->request.unfit = "a bad batch"; },
    [](Sample* s) { s->request.unfit = ""; },
    [](Sample* s) { s->request.splits = kSplits; },
    [](Sample* s) { s->request.num_splits = 3; },
    [](Sample* s) { s->request.neighbors = &kAlone; },
    [](Sample* s) { s->request.num_tensors = 2; },
    [](Sample* s) { s->request.inputs = nullptr; },
    [](Sample* s) { s->input.dtype = COVEY_FLOAT64; },
    [](Sample* s) { s->input.dtype = static_cast<covey_dtype>(77); },
    [](Sample* s) { s->input.ndim = 1; },
    [](Sample* s) { s->input.ndim = 17; },
    [](Sample* s) { s->input.shape = nullptr; },
    [](Sample* s) { s->shape[0] = 2; },
    [](Sample* s) { s->shape[1] = -1; },
    [](Sample* s) { s->other_shape[1] = 3; },
    [](Sample* s) { s->input.device_type = COVEY_CUDA; },
    [](Sample* s) { s->output.device_type = COVEY_CUDA; },
};

class RepeatsTest : public testing::Test {
 protected:
  RepeatsTest() { context_.group = &group_; }

  Status Made(const covey_request& request, Operation* operation) {
    return Validate(request, context_, operation);
  }

  Group group_{.key = 0, .members = {Rank{0}, Rank{1}, Rank{2}}, .my_index = GroupIndex{0}};
  ValidationContext context_{.self = Rank{0}};
};

void ExpectSame(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.data, b.data);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_TRUE(a.shape == b.shape);
  EXPECT_EQ(a.device, b.device);
}

void ExpectSame(const Operation& a, const Operation& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.average, b.average);
  EXPECT_EQ(a.root, b.root);
  EXPECT_EQ(a.prescale, b.prescale);
  EXPECT_EQ(a.postscale, b.postscale);
  EXPECT_EQ(a.codec, b.codec);
  EXPECT_EQ(a.splits, b.splits);
  EXPECT_EQ(a.peers, b.peers);
  EXPECT_EQ(a.refusal.ok(), b.refusal.ok());
  ASSERT_EQ(a.inputs.size(), b.inputs.size());
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.inputs.size(); ++i) ExpectSame(a.inputs[i], b.inputs[i]);
  for (size_t i = 0; i < a.outputs.size(); ++i) ExpectSame(a.outputs[i], b.outputs[i]);
}

TEST_F(RepeatsTest, WhatRepeatsIsWhatValidateMakesOfIt) {
  int taken = 0;
  for (int seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(static_cast<uint64_t>(seed));
    Sample sample;
    for (uint64_t i = rng.Below(3); i > 0; --i) kChanges[rng.Below(std::size(kChanges))](&sample);
    Operation known;
    if (!Made(sample.request, &known).ok() || known.kind != Kind::kAllreduce ||
        known.inputs.size() != 1 || !known.codec.empty() || !known.refusal.ok())
      continue;  // never kept: BeginStage::StagesAlike
    for (uint64_t i = rng.Below(3); i > 0; --i) kChanges[rng.Below(std::size(kChanges))](&sample);
    context_.check_nan = rng.Percent(20);
    if (!Repeats(sample.request, context_.check_nan, &known)) continue;
    ++taken;
    Operation made;
    const Status status = Made(sample.request, &made);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(made.refusal.ok()) << "api-A8";
    ExpectSame(known, made);
  }
  EXPECT_GT(taken, kSeeds / 10);
}

TEST_F(RepeatsTest, TensorsMayLieElsewhere) {
  Sample sample;
  Operation known;
  ASSERT_TRUE(Made(sample.request, &known).ok());
  EXPECT_TRUE(Repeats(sample.request, false, &known));
  sample.input.data = sample.memory.data() + 20;
  sample.request.outputs = &sample.output;
  EXPECT_TRUE(Repeats(sample.request, false, &known));
  EXPECT_EQ(known.inputs[0].data, reinterpret_cast<std::byte*>(sample.memory.data() + 20));
  EXPECT_EQ(known.outputs[0].data, reinterpret_cast<std::byte*>(sample.memory.data()));
}

}  // namespace
}  // namespace covey
