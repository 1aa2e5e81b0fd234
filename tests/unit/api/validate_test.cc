// Every refusal of a malformed request names the operation and the cause.
#include "core/api/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/api/covey_neighbors.h"

namespace covey {
namespace {

struct Wrong {
  const char* name;
  std::function<void(covey_request*, covey_tensor*)> change;
  StatusCode code;
  const char* text;
};

const covey_neighbors kAlone = {.struct_size = sizeof(covey_neighbors), .own_weight = 1};
const int64_t kNegative[] = {-1};
const int64_t kHuge[] = {int64_t{1} << 62, 8};
const int64_t kThree[] = {3};
const int64_t kTwoOne[] = {2, 1};
const int64_t kMinus[] = {2, -1};
const int64_t kTooMany[] = {INT64_MAX, 1};

void Split(covey_request* request, const int64_t* splits, int32_t num_splits) {
  request->splits = splits;
  request->num_splits = num_splits;
}

const Wrong kWrongs[] = {
    {"kind", [](auto* r, auto*) { r->kind = static_cast<covey_kind>(kNumKinds); },
     StatusCode::kInvalidArgument, "unknown operation kind"},
    {"op", [](auto* r, auto*) { r->op = static_cast<covey_op>(5); }, StatusCode::kInvalidArgument,
     "unknown reduction op 5"},
    {"dtype", [](auto*, auto* t) { t->dtype = static_cast<covey_dtype>(77); },
     StatusCode::kUnsupported, "dtype code 77"},
    {"bool", [](auto*, auto* t) { t->dtype = COVEY_BOOL; }, StatusCode::kUnsupported,
     "does not take bool"},
    {"dims", [](auto*, auto* t) { t->ndim = 17; }, StatusCode::kInvalidArgument, "17 dimensions"},
    {"negative", [](auto*, auto* t) { t->shape = kNegative; }, StatusCode::kInvalidArgument,
     "impossible shape [-1]"},
    {"huge",
     [](auto*, auto* t) {
       t->ndim = 2;
       t->shape = kHuge;
     },
     StatusCode::kInvalidArgument, "impossible shape"},
    {"null data", [](auto*, auto* t) { t->data = nullptr; }, StatusCode::kInvalidArgument,
     "data is NULL"},
    {"no tensor", [](auto* r, auto*) { r->num_tensors = 0; }, StatusCode::kInvalidArgument,
     "not 0"},
    {"null inputs", [](auto* r, auto*) { r->inputs = nullptr; }, StatusCode::kInvalidArgument,
     "inputs is NULL"},
    {"cuda", [](auto*, auto* t) { t->device_type = COVEY_CUDA; }, StatusCode::kUnsupported,
     "no device of type 1"},
    {"nan scale", [](auto* r, auto*) { r->prescale = std::numeric_limits<double>::quiet_NaN(); },
     StatusCode::kInvalidArgument, "not finite"},
    {"root",
     [](auto* r, auto*) {
       r->kind = COVEY_BROADCAST;
       r->root = 7;
     },
     StatusCode::kInvalidArgument, "root 7 is not a member"},
    {"root of a gather",
     [](auto* r, auto*) {
       r->kind = COVEY_GATHER;
       r->root = 7;
     },
     StatusCode::kInvalidArgument, "root 7 is not a member"},
    {"gather's outputs",
     [](auto* r, auto*) {
       r->kind = COVEY_GATHER;
       r->outputs = r->inputs;
     },
     StatusCode::kInvalidArgument, "a gather allocates its result: outputs must be NULL"},
    {"barrier", [](auto* r, auto*) { r->kind = COVEY_BARRIER; }, StatusCode::kInvalidArgument,
     "takes no tensors"},
    {"scalar allgather",
     [](auto* r, auto* t) {
       r->kind = COVEY_ALLGATHER;
       t->ndim = 0;
     },
     StatusCode::kInvalidArgument, "reshape it to [1]"},
    {"scalar alltoall",
     [](auto* r, auto* t) {
       r->kind = COVEY_ALLTOALL;
       t->ndim = 0;
     },
     StatusCode::kInvalidArgument, "alltoall splits dimension 0 and the tensor is a scalar"},
    {"scalar reducescatter",
     [](auto* r, auto* t) {
       r->kind = COVEY_REDUCESCATTER;
       r->outputs = r->inputs;
       t->ndim = 0;
     },
     StatusCode::kInvalidArgument, "reducescatter splits dimension 0 and the tensor is a scalar"},
    {"reducescatter in place", [](auto* r, auto*) { r->kind = COVEY_REDUCESCATTER; },
     StatusCode::kInvalidArgument, "cannot be done in place"},
    {"reducescatter overlapping",
     [](auto* r, auto*) {
       r->kind = COVEY_REDUCESCATTER;
       r->outputs = r->inputs;
     },
     StatusCode::kInvalidArgument, "an output overlaps its input"},
    {"reducescatter bool",
     [](auto* r, auto* t) {
       r->kind = COVEY_REDUCESCATTER;
       r->outputs = r->inputs;
       t->dtype = COVEY_BOOL;
     },
     StatusCode::kUnsupported, "reducescatter does not take bool"},
    {"alltoall outputs",
     [](auto* r, auto*) {
       r->kind = COVEY_ALLTOALL;
       r->outputs = r->inputs;
     },
     StatusCode::kInvalidArgument, "an alltoall allocates its result"},
    {"alltoall of two",
     [](auto* r, auto*) {
       r->kind = COVEY_ALLTOALL;
       r->num_tensors = 2;
     },
     StatusCode::kInvalidArgument, "an alltoall takes one tensor, not 2"},
    {"uneven without splits", [](auto* r, auto*) { r->kind = COVEY_ALLTOALL; },
     StatusCode::kInvalidArgument,
     "dimension 0 is 3 and cannot be split evenly over 2 ranks; give splits"},
    {"codec", [](auto* r, auto*) { r->codec = "int9"; }, StatusCode::kInvalidArgument,
     "there is no codec 'int9'; there are bf16, fp16, int8, qsgd, topk; the nearest is int8"},
    {"codec's block", [](auto* r, auto*) { r->codec = "int8@block=7"; },
     StatusCode::kInvalidArgument, "block 7 is not a multiple of 4 from 16 to 65536"},
    {"codec of a broadcast",
     [](auto* r, auto*) {
       r->kind = COVEY_BROADCAST;
       r->root = 0;
       r->codec = "bf16";
     },
     StatusCode::kInvalidArgument, "a codec (bf16) is for allreduce and neighbor_allreduce only"},
    {"codec of doubles",
     [](auto* r, auto* t) {
       t->dtype = COVEY_FLOAT64;
       r->codec = "bf16";
     },
     StatusCode::kUnsupported, "codec bf16 encodes float32, and the tensor has float64"},
    {"splits of an allreduce", [](auto* r, auto*) { Split(r, kTwoOne, 2); },
     StatusCode::kInvalidArgument, "only an alltoall takes splits"},
    {"too few splits",
     [](auto* r, auto*) {
       r->kind = COVEY_ALLTOALL;
       Split(r, kTwoOne, 1);
     },
     StatusCode::kInvalidArgument, "1 splits for a group of 2 ranks"},
    {"no splits where some are counted",
     [](auto* r, auto*) {
       r->kind = COVEY_ALLTOALL;
       Split(r, nullptr, 2);
     },
     StatusCode::kInvalidArgument, "splits is NULL"},
    {"negative split",
     [](auto* r, auto*) {
       r->kind = COVEY_ALLTOALL;
       Split(r, kMinus, 2);
     },
     StatusCode::kInvalidArgument, "split -1 is negative"},
    {"splits too large",
     [](auto* r, auto*) {
       r->kind = COVEY_ALLTOALL;
       Split(r, kTooMany, 2);
     },
     StatusCode::kInvalidArgument, "more than dimension 0, which is 3"},
    {"no neighbors", [](auto* r, auto*) { r->kind = COVEY_NEIGHBOR_ALLREDUCE; },
     StatusCode::kInvalidArgument, "neighbors is NULL"},
    {"whole numbers with weights",
     [](auto* r, auto* t) {
       r->kind = COVEY_NEIGHBOR_ALLREDUCE;
       r->neighbors = &kAlone;
       t->dtype = COVEY_INT32;
     },
     StatusCode::kUnsupported, "weights are for floating-point numbers, and int32 is none"},
};

TEST(ValidateTest, EveryRefusalNamesItsCause) {
  Group group;
  group.members = {Rank{0}, Rank{2}};
  group.my_index = GroupIndex{0};
  for (const Wrong& wrong : kWrongs) {
    SCOPED_TRACE(wrong.name);
    float data[3] = {};
    covey_tensor tensor = COVEY_INIT(covey_tensor);
    tensor.ndim = 1;
    tensor.shape = kThree;
    tensor.data = data;
    covey_request request = COVEY_INIT(covey_request);
    request.name = "w";
    request.num_tensors = 1;
    request.inputs = &tensor;
    Operation good;
    ASSERT_TRUE(Validate(request, {.group = &group, .self = Rank{0}}, &good).ok());
    wrong.change(&request, &tensor);
    Operation operation;
    const Status status = Validate(request, {.group = &group, .self = Rank{0}}, &operation);
    EXPECT_EQ(status.code(), wrong.code) << status.message();
    EXPECT_NE(status.message().find(wrong.text), std::string::npos) << status.message();
  }
}

TEST(ValidateTest, NonMembersAndUnknownGroupsAreRefused) {
  Group group;
  group.members = {Rank{1}, Rank{2}};
  covey_request request = COVEY_INIT(covey_request);
  request.kind = COVEY_BARRIER;
  Operation operation;
  Status status = Validate(request, {.group = &group, .self = Rank{0}}, &operation);
  EXPECT_NE(status.message().find("rank 0 is not a member of the group [1, 2]"), std::string::npos)
      << status.message();
  status = Validate(request, {.group = nullptr, .self = Rank{0}}, &operation);
  EXPECT_NE(status.message().find("no such group"), std::string::npos) << status.message();
}

TEST(ValidateTest, AverageBecomesASumAndInPlaceIsTheDefault) {
  Group group;
  group.members = {Rank{0}};
  group.my_index = GroupIndex{0};
  float data[3] = {};
  covey_tensor tensor = COVEY_INIT(covey_tensor);
  tensor.ndim = 1;
  tensor.shape = kThree;
  tensor.data = data;
  covey_request request = COVEY_INIT(covey_request);
  request.op = COVEY_AVERAGE;
  request.num_tensors = 1;
  request.inputs = &tensor;
  Operation operation;
  ASSERT_TRUE(Validate(request, {.group = &group, .self = Rank{0}}, &operation).ok());
  EXPECT_TRUE(operation.average);
  EXPECT_EQ(operation.op, Op::kSum);
  EXPECT_EQ(operation.prescale, 1.0);
  ASSERT_EQ(operation.outputs.size(), 1u);
  EXPECT_EQ(operation.outputs[0].data, operation.inputs[0].data);
}

// A group of {0, 2} in which this is member 1 of 2.
struct SecondOfTwo {
  SecondOfTwo() {
    group.members = {Rank{0}, Rank{2}};
    group.my_index = GroupIndex{1};
    for (covey_tensor* t : {&input, &output}) {
      t->ndim = 2;
      t->shape = t == &input ? in_shape : out_shape;
      t->data = t == &input ? in_data : out_data;
    }
    request.num_tensors = 1;
    request.inputs = &input;
    request.outputs = &output;
  }
  Status Run() { return Validate(request, {.group = &group, .self = Rank{2}}, &operation); }

  Group group;
  float in_data[15] = {}, out_data[15] = {};
  int64_t in_shape[2] = {5, 3}, out_shape[2] = {2, 3};
  covey_tensor input = COVEY_INIT(covey_tensor), output = COVEY_INIT(covey_tensor);
  covey_request request = COVEY_INIT(covey_request);
  Operation operation;
};

TEST(ValidateTest, TheFirstRanksGetOneRowMoreOfAReducescatter) {
  SecondOfTwo second;
  second.request.kind = COVEY_REDUCESCATTER;
  second.request.op = COVEY_AVERAGE;
  EXPECT_TRUE(second.Run().ok());
  EXPECT_TRUE(second.operation.average);
  second.out_shape[0] = 3;
  Status status = second.Run();
  EXPECT_NE(
      status.message().find(
          "output has float32 [3, 3], input has float32 [5, 3], of which this rank gets [2, 3]"),
      std::string::npos)
      << status.message();
  for (const int64_t rows : {0, 1, 2, 7, 12})
    for (const int64_t size : {1, 2, 3, 5}) {
      EXPECT_EQ(PartBegin(rows, size, 0), 0);
      EXPECT_EQ(PartBegin(rows, size, size), rows);
      for (int64_t i = 0; i < size; ++i)
        EXPECT_EQ(PartBegin(rows, size, i + 1) - PartBegin(rows, size, i),
                  rows / size + (i < rows % size ? 1 : 0));
    }
}

TEST(ValidateTest, SplitsMayLeaveRowsOutAndDefaultToEqualParts) {
  SecondOfTwo second;
  second.request.kind = COVEY_ALLTOALL;
  second.request.outputs = nullptr;
  Split(&second.request, kTwoOne, 2);
  ASSERT_TRUE(second.Run().ok());
  EXPECT_EQ(second.operation.splits, (std::vector<int64_t>{2, 1}));
  SecondOfTwo even;
  even.request.kind = COVEY_ALLTOALL;
  even.request.outputs = nullptr;
  even.in_shape[0] = 4;
  ASSERT_TRUE(even.Run().ok());
  EXPECT_EQ(even.operation.splits, (std::vector<int64_t>{2, 2}));
}

}  // namespace
}  // namespace covey
