/* The arguments of the kernels, and their names: read by the C of the plug-in, by the kernels
 * (kernels.cu) and by tests, which run their loops on the host.
 *
 * Both structs are handed over by value and stay below the 4096 bytes that any card takes. All
 * addresses are of the device. dtypes and ops are numbers of core/base/types.h.
 */
#ifndef COVEY_OPS_DEVICES_CUDA_KERNEL_ARGS_H_
#define COVEY_OPS_DEVICES_CUDA_KERNEL_ARGS_H_

#include <stdint.h>

enum { kCudaMaxSources = 64, kCudaMaxRows = 128 };
/* Without bool, which has no arithmetic; with half precision last among those that cast. */
enum { kCudaNumDTypes = 8 };

/* covey_reduce_<dtype>: outputs[k][i] = post * (pre*inputs[0][i] op pre*inputs[1][i] op ...) /
 * divisor, for every k and i < count_elems: kernels-K1 to kernels-K6 of core/base/kernels.h. An
 * output may be one of the inputs, never overlap one partly. */
typedef struct CudaReduceArgs {
  uint64_t inputs[kCudaMaxSources];
  uint64_t outputs[kCudaMaxSources];
  uint64_t count_elems;
  double prescale;
  double postscale;
  int32_t divisor;
  uint32_t num_inputs; /* at least 1 */
  uint32_t num_outputs;
  uint32_t op;
  uint32_t is_aligned; /* all addresses are multiples of 16 */
} CudaReduceArgs;

/* One tensor of a launch. */
typedef struct CudaRow {
  uint64_t to;
  uint64_t from;
  uint64_t count_elems;
} CudaRow;

/* covey_scale_<dtype>: to[i] = scale*from[i], `to` may be `from`.
 * covey_cast_<from>_<to>: the same, rounded once to another type.
 * covey_add_<dtype>: to[i] = to[i] op scale*from[i], where `to` holds elements of the accumulator:
 * float32 for half precision, else the dtype itself.
 * Many tensors at once: row r is done by the blocks with blockIdx.y == r. */
typedef struct CudaRowsArgs {
  CudaRow rows[kCudaMaxRows];
  double scale;
  uint32_t num_rows;
  uint32_t op; /* of covey_add */
} CudaRowsArgs;

#endif /* COVEY_OPS_DEVICES_CUDA_KERNEL_ARGS_H_ */
