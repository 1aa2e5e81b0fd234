/* The kernels one at a time, for measurements: `covey bench kernels --device cuda`, which
 * finds these functions in the plug-in. A context is current during all calls, the same.
 */
#ifndef COVEY_OPS_DEVICES_CUDA_BENCH_H_
#define COVEY_OPS_DEVICES_CUDA_BENCH_H_

#include <stddef.h>
#include <stdint.h>

#define COVEY_CUDA_SHOWN __attribute__((visibility("default")))

typedef struct covey_cuda_bench covey_cuda_bench;

/* 0: the plug-in was built without nvcc, and there is nothing to measure. Needs no card. */
COVEY_CUDA_SHOWN int covey_cuda_bench_has_kernels(void);
/* NULL: one sentence in `error` says why. */
COVEY_CUDA_SHOWN covey_cuda_bench* covey_cuda_bench_open(char* error, size_t capacity);
/* Launches the kernel of this name (launch.c): sums of up to 64 inputs, or one input, where `add`
 * sums into `output` and scales are 1. Does not wait. A CUresult; -1: there is no such kernel, or
 * it does not take so many inputs. */
COVEY_CUDA_SHOWN int covey_cuda_bench_launch(covey_cuda_bench* bench, const char* kernel,
                                             const uint64_t* inputs, uint32_t num_inputs,
                                             uint64_t output, uint64_t count_elems, void* stream);
/* The launched work has been done. */
COVEY_CUDA_SHOWN void covey_cuda_bench_close(covey_cuda_bench* bench);

#endif /* COVEY_OPS_DEVICES_CUDA_BENCH_H_ */
