// The operations of trainer.cc as TensorFlow knows them: their inputs, outputs and shapes. All are
// stateful: neither folded into constants nor left out when a result is not read.
#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;

absl::Status ShapesOfAttribute(InferenceContext* c) {
  std::vector<tf::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
  if (static_cast<int>(shapes.size()) != c->num_outputs())
    return absl::InvalidArgumentError("there must be as many shapes as tensors");
  for (int i = 0; i < c->num_outputs(); ++i) {
    tf::shape_inference::ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[static_cast<size_t>(i)], &shape));
    c->set_output(i, shape);
  }
  return absl::OkStatus();
}

absl::Status ShapesOfAction(InferenceContext* c) {
  int64_t hypers = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_hypers", &hypers));
  c->set_output(0, c->Scalar());
  c->set_output(1, c->Scalar());
  c->set_output(2, c->Vector(hypers));
  return absl::OkStatus();
}

// `number` is that of covey_trainer_open; `lengths`, in bytes, those of its parameters.
REGISTER_OP("CoveyTrainer")
    .Attr("number: int")
    .Attr("lengths: list(int) >= 1")
    .Output("trainer: resource")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape);

REGISTER_OP("CoveyTrainerBegin")
    .Input("trainer: resource")
    .Input("hypers: double")
    .Attr("call: {'step', 'finish', 'strict finish', 'settle', 'serve'}")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

// With `returns` it gives verb 0, COVEY_PENDING, after a while: for Python, which looks for
// signals.
REGISTER_OP("CoveyTrainerNext")
    .Input("trainer: resource")
    .Output("verb: int32")
    .Output("action: int64")
    .Output("hypers: double")
    .Attr("num_hypers: int >= 0")
    .Attr("returns: bool")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAction);

REGISTER_OP("CoveyTrainerAck")
    .Input("trainer: resource")
    .Input("action: int64")
    .Input("done: bool")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

// Copy gradients, or the model, to and from the trainer's memory.
REGISTER_OP("CoveyTrainerPut")
    .Input("trainer: resource")
    .Input("tensors: T")
    .Attr("T: list(type) >= 1")
    .Attr("of_model: bool")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_OP("CoveyTrainerGet")
    .Input("trainer: resource")
    .Output("tensors: T")
    .Attr("T: list(type) >= 1")
    .Attr("shapes: list(shape)")
    .Attr("of_model: bool")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute);

// COVEY_PACK and COVEY_UNPACK.
REGISTER_OP("CoveyTrainerGive")
    .Input("trainer: resource")
    .Input("tensors: T")
    .Attr("T: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_OP("CoveyTrainerTake")
    .Input("trainer: resource")
    .Output("tensors: T")
    .Attr("T: list(type) >= 1")
    .Attr("shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute);

// COVEY_LIST_STATE and COVEY_LOAD_STATE. Floating-point numbers are averaged, of others the
// greatest is taken.
REGISTER_OP("CoveyTrainerList")
    .Input("trainer: resource")
    .Input("tensors: T")
    .Attr("T: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_OP("CoveyTrainerListed")
    .Input("trainer: resource")
    .Output("tensors: T")
    .Attr("T: list(type) >= 0")
    .Attr("shapes: list(shape)")
    .SetIsStateful()
    .SetShapeFn(ShapesOfAttribute);

}  // namespace
