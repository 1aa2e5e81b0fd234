// Every refusal of a malformed request names the operation and the cause.
#include "core/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace covey {
namespace {

struct Wrong {
  const char* name;
  std::function<void(covey_request*, covey_tensor*)> change;
  StatusCode code;
  const char* text;
};

const int64_t kNegative[] = {-1};
const int64_t kHuge[] = {int64_t{1} << 62, 8};
const int64_t kThree[] = {3};

const Wrong kWrongs[] = {
    {"kind", [](auto* r, auto*) { r->kind = static_cast<covey_kind>(9); },
     StatusCode::kInvalidArgument, "kind 9"},
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
    {"cuda", [](auto*, auto* t) { t->device_type = COVEY_CUDA; }, StatusCode::kUnsupported, "CUDA"},
    {"nan scale", [](auto* r, auto*) { r->prescale = std::numeric_limits<double>::quiet_NaN(); },
     StatusCode::kInvalidArgument, "not finite"},
    {"root",
     [](auto* r, auto*) {
       r->kind = COVEY_BROADCAST;
       r->root = 7;
     },
     StatusCode::kInvalidArgument, "root 7 is not a member"},
    {"barrier", [](auto* r, auto*) { r->kind = COVEY_BARRIER; }, StatusCode::kInvalidArgument,
     "takes no tensors"},
    {"scalar allgather",
     [](auto* r, auto* t) {
       r->kind = COVEY_ALLGATHER;
       t->ndim = 0;
     },
     StatusCode::kInvalidArgument, "reshape it to [1]"},
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

}  // namespace
}  // namespace covey
