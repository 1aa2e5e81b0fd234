// The kernels of CoveyAllreduce, CoveyReducescatter, CoveyBroadcast, CoveyAllgather, CoveyGather,
// CoveyAlltoall and CoveyNeighborAllreduce. Their declarations: collective_declarations.cc.
//
// Compiled on the user's machine for the TensorFlow that is there (`covey build tensorflow`), over
// core/api/covey.h alone. libcovey.so is the one that the extension covey._native has loaded: it is
// needed by its soname and without a path, so there is one runtime in a process, also beside torch.
//
// Threads: ComputeAsync runs on a thread of TensorFlow, submits and returns. Where no other request
// is in flight it waits first, for as long as a hand-over to another thread takes (kHandOverNs).
// OnEnd runs on that thread, on one of Covey, or on one of another framework inside covey_wait.
//
// Invariants:
//  1. A tensor's memory outlives its request: the context holds inputs and outputs until `done`.
//  2. `done` is called exactly once, never on a thread of Covey: see OnEnd and Flight::stage.
//  3. Every operation takes the handle of its stream. TensorFlow keeps operations on one resource
//     in the order of the program, and leaves those on different ones alone: occurrences of a name
//     follow each other, everything else may be in flight at once, in any order.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/covey.h"
#include "core/api/covey_neighbors.h"
#include "frameworks/tensorflow/translation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/threadpool.h"

namespace {

namespace tf = tensorflow;

// The resource of a handle of CoveyStream. It is empty: the handle is for ordering.
class Stream : public tf::ResourceBase {
 public:
  std::string DebugString() const override { return "stream of Covey"; }
};

// ---- Between the two ---------------------------------------------------------------------------

using covey_tensorflow::DtypeOf;
using covey_tensorflow::kHandOverNs;
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

constexpr bool IsReduction(covey_kind kind) {
  return kind == COVEY_ALLREDUCE || kind == COVEY_REDUCESCATTER;
}

constexpr bool HasRoot(covey_kind kind) { return kind == COVEY_BROADCAST || kind == COVEY_GATHER; }

// The core allocates the result of these.
constexpr bool IsGathered(covey_kind kind) {
  return kind == COVEY_ALLGATHER || kind == COVEY_GATHER || kind == COVEY_ALLTOALL;
}

// How many inputs are tensors, or the stream's handle, which is the first; parameters follow.
int EndOfTensors(covey_kind kind, int num_inputs) {
  return kind == COVEY_ALLTOALL || kind == COVEY_NEIGHBOR_ALLREDUCE ? 2 : num_inputs;
}

// The members of a group, all ranks without any. 0 before init and after shutdown.
int SizeOf(const std::vector<int32_t>& ranks) {
  return ranks.empty() ? std::max(covey_size(nullptr), 0) : static_cast<int>(ranks.size());
}

// The part of a reducescatter of `whole` that this rank gets. A shape that cannot be divided is
// returned unchanged: the core refuses it.
tf::TensorShape PartOf(const tf::TensorShape& whole, const std::vector<int32_t>& ranks) {
  const int size = SizeOf(ranks), rank = covey_rank(nullptr);
  if (whole.dims() == 0 || size == 0) return whole;
  const auto before = std::count_if(ranks.begin(), ranks.end(), [=](int r) { return r < rank; });
  const int64_t index = ranks.empty() ? rank : before;
  const int64_t rows = whole.dim_size(0);
  tf::TensorShape part = whole;
  part.set_dim(0, rows / size + (index < rows % size ? 1 : 0));
  return part;
}

// Requests of this process from submit to done.
std::atomic<int> in_flight{0};

// ComputeAsync and OnEnd leave their marks on a request, in either order. The second one finds that
// of the first, and sees to End: ComputeAsync calls it, OnEnd hands it to TensorFlow.
enum class Stage { kSubmitted, kLeft, kEnded };

// From submit to done. `gathered` is memory of the core, of a gathered result that has ended well;
// `rows` how many of it came from each rank.
struct Flight {
  tf::OpKernelContext* context;
  tf::AsyncOpKernel::DoneCallback done;
  covey_kind kind;
  std::atomic<Stage> stage{Stage::kSubmitted};
  absl::Status status;
  void* gathered = nullptr;
  tf::TensorShape gathered_shape;
  std::vector<int64_t> rows;
};

void TakeGathered(Flight* flight, covey_handle handle) {
  covey_tensor result = COVEY_INIT(covey_tensor);
  covey_error error = COVEY_INIT(covey_error);
  const covey_code code =
      covey_result_take(nullptr, handle, 0, &result, flight->rows.data(), &error);
  flight->status = StatusOf(code, error);
  if (code != COVEY_OK) return;
  flight->gathered = result.data;
  for (int i = 0; i < result.ndim; ++i) flight->gathered_shape.AddDim(result.shape[i]);
}

absl::Status CopyGathered(const Flight& flight) {
  tf::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(flight.context->allocate_output(0, flight.gathered_shape, &output));
  if (output->TotalBytes() > 0) std::memcpy(output->data(), flight.gathered, output->TotalBytes());
  if (flight.kind == COVEY_ALLGATHER) return absl::OkStatus();
  tf::Tensor* rows = nullptr;
  const auto size = static_cast<int64_t>(flight.rows.size());
  TF_RETURN_IF_ERROR(flight.context->allocate_output(1, tf::TensorShape({size}), &rows));
  std::copy(flight.rows.begin(), flight.rows.end(), rows->vec<int64_t>().data());
  return absl::OkStatus();
}

// On a thread of TensorFlow's.
void End(Flight* ended) {
  const std::unique_ptr<Flight> flight(ended);
  in_flight.fetch_sub(1, std::memory_order_relaxed);
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
  if (flight->status.ok() && IsGathered(flight->kind)) TakeGathered(flight, handle);
  covey_release(nullptr, handle);
  if (flight->stage.exchange(Stage::kEnded) == Stage::kSubmitted) return;
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
    if (HasRoot(kind)) OP_REQUIRES_OK(c, c->GetAttr("root", &root_));
    if (kind == COVEY_NEIGHBOR_ALLREDUCE) {
      OP_REQUIRES_OK(c, c->GetAttr("codec", &codec_));
      OP_REQUIRES_OK(c, c->GetAttr("names_receivers", &names_receivers_));
      OP_REQUIRES_OK(c, c->GetAttr("any_sum", &any_sum_));
    }
    if (!IsReduction(kind)) return;
    OP_REQUIRES_OK(c, c->GetAttr("op", &op_));
    OP_REQUIRES_OK(c, GetFactor(c, "prescale_bits", &prescale_));
    OP_REQUIRES_OK(c, GetFactor(c, "postscale_bits", &postscale_));
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    const int end = EndOfTensors(kind, context->num_inputs());
    Described inputs(static_cast<size_t>(end));
    Described outputs(static_cast<size_t>(end));
    for (int i = 1; i < end; ++i) {
      const tf::Tensor& input = context->input(i);
      inputs.Add(input);
      if (IsGathered(kind)) continue;
      tf::Tensor* output = nullptr;
      const bool is_part = kind == COVEY_REDUCESCATTER;
      const tf::TensorShape shape = is_part ? PartOf(input.shape(), ranks_) : input.shape();
      OP_REQUIRES_OK_ASYNC(context, Allocate(context, i, shape, &output), done);
      outputs.Add(*output);
    }
    auto flight = std::make_unique<Flight>();
    flight->context = context;
    flight->done = done;
    flight->kind = kind;
    flight->rows.resize(static_cast<size_t>(SizeOf(ranks_)));
    covey_request request = Request();
    request.num_tensors = static_cast<int32_t>(inputs.tensors.size());
    request.inputs = inputs.tensors.data();
    request.outputs = IsGathered(kind) ? nullptr : outputs.tensors.data();
    request.context = flight.get();
    if (kind == COVEY_ALLTOALL && context->input(2).NumElements() > 0) {
      request.splits = context->input(2).flat<int64_t>().data();
      request.num_splits = static_cast<int32_t>(context->input(2).NumElements());
    }
    covey_neighbors neighbors = COVEY_INIT(covey_neighbors);
    if (kind == COVEY_NEIGHBOR_ALLREDUCE) {
      OP_REQUIRES_OK_ASYNC(context, Describe(*context, &neighbors), done);
      request.neighbors = &neighbors;
    }
    const bool is_alone = in_flight.fetch_add(1, std::memory_order_relaxed) == 0;
    request.waits = is_alone ? 1 : 0;
    covey_handle handle = 0;
    const absl::Status submitted = Submit(request, &handle);
    if (!submitted.ok()) in_flight.fetch_sub(1, std::memory_order_relaxed);
    OP_REQUIRES_OK_ASYNC(context, submitted, done);
    Flight* under_way = flight.release();
    covey_error error = COVEY_INIT(covey_error);
    if (is_alone) covey_wait(nullptr, handle, kHandOverNs, &error);  // `stage` says how it went.
    if (under_way->stage.exchange(Stage::kLeft) == Stage::kEnded) End(under_way);
  }

 private:
  // Output i - 1. It takes the memory of input i where nothing else needs that: in place no page of
  // new memory is touched, which takes longer than the exchange.
  static absl::Status Allocate(tf::OpKernelContext* context, int i, const tf::TensorShape& shape,
                               tf::Tensor** output) {
    if (kind == COVEY_REDUCESCATTER) return context->allocate_output(i - 1, shape, output);
    return context->forward_input_or_allocate_output({i}, i - 1, shape, output);
  }

  static absl::Status GetFactor(tf::OpKernelConstruction* c, const char* name, double* factor) {
    int64_t bits = 0;
    TF_RETURN_IF_ERROR(c->GetAttr(name, &bits));
    std::memcpy(factor, &bits, sizeof(*factor));
    return absl::OkStatus();
  }

  // The row of weights, in memory of the inputs.
  absl::Status Describe(const tf::OpKernelContext& context, covey_neighbors* neighbors) const {
    const tf::Tensor &own = context.input(2), &sources = context.input(3);
    const tf::Tensor &weights = context.input(4), &receivers = context.input(5);
    if (own.NumElements() != 1 || sources.NumElements() != weights.NumElements())
      return absl::InvalidArgumentError("neighbors: one own weight, as many weights as sources");
    neighbors->own_weight = own.flat<double>()(0);
    neighbors->sources = sources.flat<int32_t>().data();
    neighbors->weights = weights.flat<double>().data();
    neighbors->num_sources = static_cast<int32_t>(sources.NumElements());
    neighbors->any_sum = any_sum_ ? 1 : 0;
    if (!names_receivers_) return absl::OkStatus();
    static constexpr int32_t kNone = 0;  // Not null, which is "all that take".
    const bool has_any = receivers.NumElements() > 0;
    neighbors->receivers = has_any ? receivers.flat<int32_t>().data() : &kNone;
    neighbors->num_receivers = static_cast<int32_t>(receivers.NumElements());
    return absl::OkStatus();
  }

  absl::Status Submit(covey_request request, covey_handle* handle) const {
    covey_error error = COVEY_INIT(covey_error);
    covey_code code = COVEY_OK;
    if (!ranks_.empty())
      code = covey_group_of(nullptr, ranks_.data(), static_cast<int32_t>(ranks_.size()),
                            &request.group, &error);
    if (code == COVEY_OK) code = covey_submit(nullptr, &request, handle, &error);
    return StatusOf(code, error);
  }

  covey_request Request() const {
    covey_request request = COVEY_INIT(covey_request);
    request.kind = kind;
    request.name = request_.empty() ? nullptr : request_.c_str();
    request.op = static_cast<covey_op>(op_);
    request.root = static_cast<int32_t>(root_);
    request.prescale = prescale_;
    request.postscale = postscale_;
    request.codec = codec_.c_str();
    request.callback = OnEnd;
    return request;
  }

  std::string request_;
  std::vector<int32_t> ranks_;
  int64_t op_ = COVEY_SUM;
  int64_t root_ = 0;
  double prescale_ = 1;
  double postscale_ = 1;
  std::string codec_;
  bool names_receivers_ = false;
  bool any_sum_ = false;
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
REGISTER_KERNEL_BUILDER(Name("CoveyGather").Device(tf::DEVICE_CPU), Collective<COVEY_GATHER>);
REGISTER_KERNEL_BUILDER(Name("CoveyAlltoall").Device(tf::DEVICE_CPU), Collective<COVEY_ALLTOALL>);
REGISTER_KERNEL_BUILDER(Name("CoveyReducescatter").Device(tf::DEVICE_CPU),
                        Collective<COVEY_REDUCESCATTER>);
REGISTER_KERNEL_BUILDER(Name("CoveyNeighborAllreduce").Device(tf::DEVICE_CPU),
                        Collective<COVEY_NEIGHBOR_ALLREDUCE>);

}  // namespace
