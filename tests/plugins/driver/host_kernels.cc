#include "tests/plugins/driver/host_kernels.h"

#include "ops/devices/cuda/loops.h"

namespace covey {
namespace {

template <class T>
void Reduce(const CudaReduceArgs& args, uint64_t thread, uint64_t threads) {
  cuda::ReduceShare<T>(args, {thread, threads});
}
template <class T>
void Add(const CudaRowsArgs& args, uint32_t row, uint64_t thread, uint64_t threads) {
  cuda::AddShare<T>(args.rows[row], args.op, args.scale, {thread, threads});
}
template <class From, class To>
void Convert(const CudaRowsArgs& args, uint32_t row, uint64_t thread, uint64_t threads) {
  cuda::ConvertShare<From, To>(args.rows[row], args.scale, {thread, threads});
}

struct Named {
  std::string_view name;
  HostKernel kernel;
};
using cuda::BF16;
using cuda::F16;
constexpr Named kNamed[] = {
    {"covey_reduce_float32", {.reduce = Reduce<float>}},
    {"covey_reduce_float64", {.reduce = Reduce<double>}},
    {"covey_reduce_float16", {.reduce = Reduce<F16>}},
    {"covey_reduce_bfloat16", {.reduce = Reduce<BF16>}},
    {"covey_reduce_uint8", {.reduce = Reduce<uint8_t>}},
    {"covey_reduce_int8", {.reduce = Reduce<int8_t>}},
    {"covey_reduce_int32", {.reduce = Reduce<int32_t>}},
    {"covey_reduce_int64", {.reduce = Reduce<int64_t>}},
    {"covey_add_float32", {.row = Add<float>}},
    {"covey_add_float64", {.row = Add<double>}},
    {"covey_add_float16", {.row = Add<F16>}},
    {"covey_add_bfloat16", {.row = Add<BF16>}},
    {"covey_add_uint8", {.row = Add<uint8_t>}},
    {"covey_add_int8", {.row = Add<int8_t>}},
    {"covey_add_int32", {.row = Add<int32_t>}},
    {"covey_add_int64", {.row = Add<int64_t>}},
    {"covey_scale_float32", {.row = Convert<float, float>}},
    {"covey_scale_float64", {.row = Convert<double, double>}},
    {"covey_scale_float16", {.row = Convert<F16, F16>}},
    {"covey_scale_bfloat16", {.row = Convert<BF16, BF16>}},
    {"covey_scale_uint8", {.row = Convert<uint8_t, uint8_t>}},
    {"covey_scale_int8", {.row = Convert<int8_t, int8_t>}},
    {"covey_scale_int32", {.row = Convert<int32_t, int32_t>}},
    {"covey_scale_int64", {.row = Convert<int64_t, int64_t>}},
    {"covey_cast_float32_float16", {.row = Convert<float, F16>}},
    {"covey_cast_float32_bfloat16", {.row = Convert<float, BF16>}},
    {"covey_cast_float16_float32", {.row = Convert<F16, float>}},
    {"covey_cast_float16_bfloat16", {.row = Convert<F16, BF16>}},
    {"covey_cast_bfloat16_float32", {.row = Convert<BF16, float>}},
    {"covey_cast_bfloat16_float16", {.row = Convert<BF16, F16>}},
};

}  // namespace

const HostKernel* FindHostKernel(std::string_view name) {
  for (const Named& one : kNamed)
    if (one.name == name) return &one.kernel;
  return nullptr;
}

}  // namespace covey
