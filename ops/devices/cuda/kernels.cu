// The kernels, compiled by nvcc where there is one: entries over loops.h, whose names the plug-in
// asks for (launch.c). Nothing else is decided here.
#include "ops/devices/cuda/loops.h"

namespace covey::cuda {
namespace {

__device__ Share MyShare() {
  return {uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, uint64_t{gridDim.x} * blockDim.x};
}

}  // namespace

#define COVEY_REDUCE(name, T)                                                                   \
  extern "C" __global__ void covey_reduce_##name(const __grid_constant__ CudaReduceArgs args) { \
    ReduceShare<T>(args, MyShare());                                                            \
  }
#define COVEY_ADD(name, T)                                                                 \
  extern "C" __global__ void covey_add_##name(const __grid_constant__ CudaRowsArgs args) { \
    AddShare<T>(args.rows[blockIdx.y], args.op, args.scale, MyShare());                    \
  }
#define COVEY_CONVERT(name, From, To)                                                  \
  extern "C" __global__ void covey_##name(const __grid_constant__ CudaRowsArgs args) { \
    ConvertShare<From, To>(args.rows[blockIdx.y], args.scale, MyShare());              \
  }
#define COVEY_ALL(name, T) \
  COVEY_REDUCE(name, T)    \
  COVEY_ADD(name, T)       \
  COVEY_CONVERT(scale_##name, T, T)

COVEY_ALL(float32, float)
COVEY_ALL(float64, double)
COVEY_ALL(float16, F16)
COVEY_ALL(bfloat16, BF16)
COVEY_ALL(uint8, uint8_t)
COVEY_ALL(int8, int8_t)
COVEY_ALL(int32, int32_t)
COVEY_ALL(int64, int64_t)
COVEY_CONVERT(cast_float32_float16, float, F16)
COVEY_CONVERT(cast_float32_bfloat16, float, BF16)
COVEY_CONVERT(cast_float16_float32, F16, float)
COVEY_CONVERT(cast_float16_bfloat16, F16, BF16)
COVEY_CONVERT(cast_bfloat16_float32, BF16, float)
COVEY_CONVERT(cast_bfloat16_float16, BF16, F16)

}  // namespace covey::cuda
