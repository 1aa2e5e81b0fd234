// CoveyPlace: where this process is, as a tensor that is computed when a graph runs. Stateful, so
// that no optimiser makes a constant of it. Any thread; it does not wait.
#include <algorithm>
#include <string>
#include <vector>

#include "core/api/covey.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

namespace tf = tensorflow;

// `process_set`: a covey_group, for size and included.
REGISTER_OP("CoveyPlace")
    .Output("number: int32")
    .Attr("what: {'size', 'rank', 'local_size', 'local_rank', 'included'}")
    .Attr("process_set: int")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape);

class Place : public tf::OpKernel {
 public:
  explicit Place(tf::OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("what", &what_));
    OP_REQUIRES_OK(c, c->GetAttr("process_set", &process_set_));
  }

  void Compute(tf::OpKernelContext* context) override {
    OP_REQUIRES(context, covey_size(nullptr) > 0,
                absl::FailedPreconditionError("covey is not initialized: call init() first"));
    tf::Tensor* number = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({}), &number));
    const int value = Value();
    OP_REQUIRES(context, value >= 0, absl::InvalidArgumentError("no such process set"));
    number->scalar<int32_t>()() = value;
  }

 private:
  int Value() const {
    if (what_ == "rank") return covey_rank(nullptr);
    if (what_ == "local_rank") return covey_local_rank(nullptr);
    if (what_ == "local_size") return covey_local_size(nullptr);
    std::vector<int32_t> ranks(static_cast<size_t>(covey_size(nullptr)));
    const int size = covey_group_ranks(nullptr, static_cast<covey_group>(process_set_),
                                       ranks.data(), static_cast<int32_t>(ranks.size()));
    if (what_ == "size" || size < 0) return size;
    return static_cast<int>(std::count(ranks.begin(), ranks.begin() + size, covey_rank(nullptr)));
  }

  std::string what_;
  int64_t process_set_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("CoveyPlace").Device(tf::DEVICE_CPU), Place);

}  // namespace
