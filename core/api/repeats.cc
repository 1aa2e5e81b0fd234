#include "core/api/repeats.h"

#include <algorithm>

namespace covey {
namespace {

bool IsLike(const covey_tensor& tensor, const Tensor& known) {
  return tensor.dtype == static_cast<int32_t>(known.dtype) && tensor.device_type == COVEY_CPU &&
         tensor.data != nullptr && tensor.ndim == known.shape.ndim &&
         (tensor.ndim == 0 ||
          (tensor.shape != nullptr &&
           std::equal(tensor.shape, tensor.shape + tensor.ndim, known.shape.dims.begin())));
}

// Fields that an allreduce without codec and callback leaves empty: some are set.
bool HasMore(const covey_request& r) {
  return r.callback != nullptr || r.splits != nullptr || r.num_splits != 0 ||
         r.neighbors != nullptr || (r.codec != nullptr && r.codec[0] != '\0');
}

double ScaleOf(double given) { return given == 0 ? 1.0 : given; }

}  // namespace

bool Repeats(const covey_request& r, bool check_nan, Operation* operation) {
  const Operation& o = *operation;
  if (r.waits == 0 || r.kind != static_cast<int32_t>(o.kind) || r.num_tensors != 1 ||
      r.inputs == nullptr || o.inputs.size() != 1 || HasMore(r))
    return false;
  // api-A8: nor what is looked at for NaN, or is said to be unfit.
  if (r.unfit == nullptr ? check_nan : r.unfit[0] != '\0') return false;
  const int32_t op = o.average ? COVEY_AVERAGE : static_cast<int32_t>(o.op);
  if (r.op != op || ScaleOf(r.prescale) != o.prescale || ScaleOf(r.postscale) != o.postscale)
    return false;
  const covey_tensor& in = r.inputs[0];
  const covey_tensor& out = r.outputs == nullptr ? in : r.outputs[0];
  if (!IsLike(in, o.inputs[0]) || (&in != &out && !IsLike(out, o.outputs[0]))) return false;
  auto* from = static_cast<std::byte*>(in.data);
  auto* to = static_cast<std::byte*>(out.data);
  const auto length = static_cast<ptrdiff_t>(o.inputs[0].LengthBytes());
  if (from != to && std::max(from, to) - std::min(from, to) < length) return false;
  operation->inputs[0].data = from;
  operation->outputs[0].data = to;
  return true;
}

}  // namespace covey
