// The operations of Covey as TensorFlow knows them: CoveyAllreduce, CoveyBroadcast, CoveyAllgather.
//
// Compiled on the user's machine for the TensorFlow that is there (`covey build tensorflow`), over
// core/api/covey.h alone. libcovey.so is the one that the extension covey._native has loaded: it is
// needed by its soname and without a path, so there is one runtime in a process, also beside torch.
//
// Threads: ComputeAsync runs on a thread of TensorFlow, submits and returns; no thread waits.
// OnEnd runs on a thread of Covey, or on one of another framework that is inside covey_wait.
//
// Invariants:
//  1. A tensor's memory outlives its request: the context holds inputs and outputs until `done`.
//  2. `done` is called exactly once, never on a thread of Covey: see OnEnd.
//  3. Every operation takes the handle of its stream. TensorFlow keeps operations on one resource
//     in the order of the program, and leaves those on different ones alone: occurrences of a name
//     follow each other, everything else may be in flight at once, in any order.
//  4. They are stateful: neither folded into constants nor left out when the result is not read,
//     for the other ranks count on them.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/covey.h"
#include "frameworks/tensorflow/translation.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/threadpool.h"

namespace {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

// ---- Declarations for TensorFlow ----------------------------------------------------------------

// The resource of a handle of CoveyStream. It is empty: the handle is for ordering.
class Stream : public tf::ResourceBase {
 public:
  std::string DebugString() const override { return "stream of Covey"; }
};

absl::Status ShapesOfInputs(InferenceContext* c) {
  for (int i = 1; i < c->num_inputs(); ++i) c->set_output(i - 1, c->input(i));
  return absl::OkStatus();
}

// How many rows the others have is known when it runs.
absl::Status ShapeOfGathered(InferenceContext* c) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(1), 1, &shape));
  TF_RETURN_IF_ERROR(c->ReplaceDim(shape, 0, c->UnknownDim(), &shape));
  c->set_output(0, shape);
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
    .Attr(
        "T: {float, double, half, bfloat16, uint8, int8, int16, uint16, int32, uint32, int64, "
        "uint64}")
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
    .Attr(
        "T: {float, double, half, bfloat16, uint8, int8, int16, uint16, int32, uint32, int64, "
        "uint64, bool}")
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .Attr("root: int")
    .SetIsStateful()
    .SetShapeFn(ShapesOfInputs);

REGISTER_OP("CoveyAllgather")
    .Input("stream: resource")
    .Input("tensor: T")
    .Output("result: T")
    .Attr(
        "T: {float, double, half, bfloat16, uint8, int8, int16, uint16, int32, uint32, int64, "
        "uint64, bool}")
    .Attr("request: string")
    .Attr("ranks: list(int)")
    .SetIsStateful()
    .SetShapeFn(ShapeOfGathered);

// ---- Between the two ---------------------------------------------------------------------------

using covey_tensorflow::DtypeOf;
using covey_tensorflow::StatusOf;

// Tensors as the core sees them; `shapes` must stay where it is.
struct Described {
  std::vector<covey_tensor> tensors;
  std::vector<std::vector<int64_t>> shapes;

  explicit Described(size_t count) {
    tensors.reserve(count);
    shapes.reserve(count);
  }

  void Add(const tf::Tensor& tensor) {
    const auto sizes = tensor.shape().dim_sizes();
    shapes.emplace_back(sizes.begin(), sizes.end());
    covey_tensor described = COVEY_INIT(covey_tensor);
    described.dtype = DtypeOf(tensor.dtype());
    described.ndim = tensor.dims();
    described.shape = shapes.back().data();
    described.data = tensor.data();
    tensors.push_back(described);
  }
};

// ---- One operation -----------------------------------------------------------------------------

// From submit to done. `gathered` is memory of the core, of an allgather that has ended well.
struct Flight {
  tf::OpKernelContext* context;
  tf::AsyncOpKernel::DoneCallback done;
  covey_kind kind;
  absl::Status status;
  void* gathered = nullptr;
  tf::TensorShape gathered_shape;
};

void TakeGathered(Flight* flight, covey_handle handle) {
  covey_tensor result = COVEY_INIT(covey_tensor);
  covey_error error = COVEY_INIT(covey_error);
  const covey_code code = covey_result_take(nullptr, handle, 0, &result, nullptr, &error);
  flight->status = StatusOf(code, error);
  if (code != COVEY_OK) return;
  flight->gathered = result.data;
  for (int i = 0; i < result.ndim; ++i) flight->gathered_shape.AddDim(result.shape[i]);
}

absl::Status CopyGathered(const Flight& flight) {
  tf::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(flight.context->allocate_output(0, flight.gathered_shape, &output));
  if (output->TotalBytes() > 0) std::memcpy(output->data(), flight.gathered, output->TotalBytes());
  return absl::OkStatus();
}

// On a thread of TensorFlow's.
void End(Flight* ended) {
  const std::unique_ptr<Flight> flight(ended);
  if (flight->gathered != nullptr) flight->status = CopyGathered(*flight);
  covey_free(flight->gathered);
  flight->context->SetStatus(flight->status);
  flight->done();
}

// The core's callback. `done` may free tensors, take TensorFlow's locks, run what comes next and so
// submit again: nothing for the thread that drives all exchanges of this process. It
// goes to the pool that shares out the loops of kernels. Not to the executor's runner, which some
// executors make run things where they are. That pool's threads wait for no exchange, so `done` is
// at worst late by what a kernel computes there.
void OnEnd(void* context, covey_handle handle, const covey_error* error) {
  auto* flight = static_cast<Flight*>(context);
  flight->status = StatusOf(error->code, *error);
  if (flight->status.ok() && flight->kind == COVEY_ALLGATHER) TakeGathered(flight, handle);
  covey_release(nullptr, handle);
  const auto* workers = flight->context->device()->tensorflow_cpu_worker_threads();
  workers->workers->Schedule([flight] { End(flight); });
}

template <covey_kind kind>
class Collective : public tf::AsyncOpKernel {
 public:
  explicit Collective(tf::OpKernelConstruction* c) : AsyncOpKernel(c) {
    std::vector<int64_t> ranks;
    OP_REQUIRES_OK(c, c->GetAttr("request", &request_));
    OP_REQUIRES_OK(c, c->GetAttr("ranks", &ranks));
    ranks_.assign(ranks.begin(), ranks.end());
    if (kind == COVEY_BROADCAST) OP_REQUIRES_OK(c, c->GetAttr("root", &root_));
    if (kind != COVEY_ALLREDUCE) return;
    OP_REQUIRES_OK(c, c->GetAttr("op", &op_));
    OP_REQUIRES_OK(c, GetFactor(c, "prescale_bits", &prescale_));
    OP_REQUIRES_OK(c, GetFactor(c, "postscale_bits", &postscale_));
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    Described inputs(static_cast<size_t>(context->num_inputs()));
    Described outputs(static_cast<size_t>(context->num_inputs()));
    for (int i = 1; i < context->num_inputs(); ++i) {  // 0 is the stream's handle.
      inputs.Add(context->input(i));
      if (kind == COVEY_ALLGATHER) continue;
      tf::Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(
          context, context->allocate_output(i - 1, context->input(i).shape(), &output), done);
      outputs.Add(*output);
    }
    auto flight = std::make_unique<Flight>();
    flight->context = context;
    flight->done = done;
    flight->kind = kind;
    covey_request request = Request();
    request.num_tensors = static_cast<int32_t>(inputs.tensors.size());
    request.inputs = inputs.tensors.data();
    request.outputs = kind == COVEY_ALLGATHER ? nullptr : outputs.tensors.data();
    request.context = flight.get();
    covey_error error = COVEY_INIT(covey_error);
    covey_code code = COVEY_OK;
    if (!ranks_.empty())
      code = covey_group_of(nullptr, ranks_.data(), static_cast<int32_t>(ranks_.size()),
                            &request.group, &error);
    covey_handle handle = 0;
    if (code == COVEY_OK) code = covey_submit(nullptr, &request, &handle, &error);
    OP_REQUIRES_OK_ASYNC(context, StatusOf(code, error), done);
    static_cast<void>(flight.release());  // OnEnd has it, and may have ended it already.
  }

 private:
  static absl::Status GetFactor(tf::OpKernelConstruction* c, const char* name, double* factor) {
    int64_t bits = 0;
    TF_RETURN_IF_ERROR(c->GetAttr(name, &bits));
    std::memcpy(factor, &bits, sizeof(*factor));
    return absl::OkStatus();
  }

  covey_request Request() const {
    covey_request request = COVEY_INIT(covey_request);
    request.kind = kind;
    request.name = request_.empty() ? nullptr : request_.c_str();
    request.op = static_cast<covey_op>(op_);
    request.root = static_cast<int32_t>(root_);
    request.prescale = prescale_;
    request.postscale = postscale_;
    request.callback = OnEnd;
    return request;
  }

  std::string request_;
  std::vector<int32_t> ranks_;
  int64_t op_ = COVEY_SUM;
  int64_t root_ = 0;
  double prescale_ = 1;
  double postscale_ = 1;
};

class StreamHandle : public tf::OpKernel {
 public:
  explicit StreamHandle(tf::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("stream", &stream_));
  }

  void Compute(tf::OpKernelContext* context) override {
    tf::Tensor* handle = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({}), &handle));
    handle->scalar<tf::ResourceHandle>()() =
        tf::MakeResourceHandle<Stream>(context, "covey", stream_);
  }

 private:
  std::string stream_;
};

REGISTER_KERNEL_BUILDER(Name("CoveyStream").Device(tf::DEVICE_CPU), StreamHandle);
REGISTER_KERNEL_BUILDER(Name("CoveyAllreduce").Device(tf::DEVICE_CPU), Collective<COVEY_ALLREDUCE>);
REGISTER_KERNEL_BUILDER(Name("CoveyBroadcast").Device(tf::DEVICE_CPU), Collective<COVEY_BROADCAST>);
REGISTER_KERNEL_BUILDER(Name("CoveyAllgather").Device(tf::DEVICE_CPU), Collective<COVEY_ALLGATHER>);

}  // namespace
