// The operations of Covey as TensorFlow knows them: names, arguments and shapes. The kernels:
// collectives.cc.
//
// All are stateful: neither folded into constants nor left out when the result is not read, for the
// other ranks count on them. Pure functions: any thread.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

constexpr char kReduced[] =
    "T: {float, double, half, bfloat16, uint8, int8, int16, uint16, int32, uint32, int64, uint64}";
constexpr char kMoved[] =
    "T: {float, double, half, bfloat16, uint8, int8, int16, uint16, int32, uint32, int64, uint64, "
    "bool}";

constexpr char kAveraged[] = "T: {float, double, half, bfloat16}";

absl::Status ShapesOfInputs(InferenceContext* c) {
  for (int i = 1; i < c->num_inputs(); ++i) c->set_output(i - 1, c->input(i));
  return absl::OkStatus();
}

// `shape` with any number of rows.
absl::Status AnyRows(InferenceContext* c, ShapeHandle shape, ShapeHandle* result) {
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(shape, 1, &shape));
  return c->ReplaceDim(shape, 0, c->UnknownDim(), result);
}

// How many rows the others have, and which are this rank's, is known when it runs.
absl::Status ShapesOfParts(InferenceContext* c) {
  for (int i = 1; i < c->num_inputs(); ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(AnyRows(c, c->input(i), &shape));
    c->set_output(i - 1, shape);
  }
  return absl::OkStatus();
}

absl::Status ShapesOfReceived(InferenceContext* c) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(AnyRows(c, c->input(1), &shape));
  c->set_output(0, shape);
  c->set_output(1, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

REGISTER_OP("CoveyStream")
    .Attr("stream: string")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape);

// `request` is the name in the core, "" for none; `ranks` the members, none for all ranks. A factor
// is given by the bits of its double: an attribute of type float has 32 bits.
REGISTER_OP("CoveyAllreduce")
    .Input("stream: resource")
    .Input("tensors: N * T")
    .Output("results: N * T")
    .Attr("N: int >= 1")
    .Attr(kReduced)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .Attr("op: int")
    .Attr("prescale_bits: int")
    .Attr("postscale_bits: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfInputs);

REGISTER_OP("CoveyBroadcast")
    .Input("stream: resource")
    .Input("tensors: N * T")
    .Output("results: N * T")
    .Attr("N: int >= 1")
    .Attr(kMoved)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .Attr("root: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfInputs);

REGISTER_OP("CoveyAllgather")
    .Input("stream: resource")
    .Input("tensor: T")
    .Output("result: T")
    .Attr(kMoved)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .SetIsStateful()
    .SetShapeFn(ShapesOfParts);

REGISTER_OP("CoveyReducescatter")
    .Input("stream: resource")
    .Input("tensors: N * T")
    .Output("results: N * T")
    .Attr("N: int >= 1")
    .Attr(kReduced)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .Attr("op: int")
    .Attr("prescale_bits: int")
    .Attr("postscale_bits: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfParts);

// `rows`: how many came from each rank; on ranks that are not the root zeros.
REGISTER_OP("CoveyGather")
    .Input("stream: resource")
    .Input("tensor: T")
    .Output("result: T")
    .Output("rows: int64")
    .Attr(kMoved)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .Attr("root: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfReceived);

// `splits`: how many rows go to each rank; without elements: equal parts.
REGISTER_OP("CoveyAlltoall")
    .Input("stream: resource")
    .Input("tensor: T")
    .Input("splits: int64")
    .Output("result: T")
    .Output("rows: int64")
    .Attr(kMoved)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .SetIsStateful()
    .SetShapeFn(ShapesOfReceived);

// This rank's row of weights, which may be another one each time: its own weight, the ranks that it
// takes from and their weights, and, if `names_receivers`, those that take from it.
REGISTER_OP("CoveyNeighborAllreduce")
    .Input("stream: resource")
    .Input("tensor: T")
    .Input("own_weight: double")
    .Input("sources: int32")
    .Input("weights: double")
    .Input("receivers: int32")
    .Output("result: T")
    .Attr(kAveraged)
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .Attr("codec: string")
    .Attr("names_receivers: bool")
    .Attr("any_sum: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    });

}  // namespace
