#include "ops/devices/cuda/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/devices/cuda/launch.h"

struct covey_cuda_bench {
  CudaDriver driver;
  CudaKernels kernels;
};

int covey_cuda_bench_has_kernels(void) { return kCudaImage[0] != 0; }

covey_cuda_bench* covey_cuda_bench_open(char* error, size_t capacity) {
  covey_cuda_bench* bench = calloc(1, sizeof(*bench));
  if (bench == NULL) {
    snprintf(error, capacity, "no memory");
    return NULL;
  }
  const char* why = NULL;
  if (CudaOpenDriver(&bench->driver, error, capacity) == 0) {
    if (CudaLoadKernels(&bench->driver, kCudaImage, &bench->kernels, &why)) return bench;
    snprintf(error, capacity, "%s%s",
             why == NULL ? "the plug-in was built without nvcc and has no kernels"
                         : "the driver does not take the kernels: ",
             why == NULL ? "" : why);
  }
  free(bench);
  return NULL;
}

static int Number(const char* kernel) {
  for (int i = 0; i < kCudaNumKernels; ++i)
    if (strcmp(kCudaKernelNames[i], kernel) == 0) return i;
  return -1;
}

int covey_cuda_bench_launch(covey_cuda_bench* bench, const char* kernel, const uint64_t* inputs,
                            uint32_t num_inputs, uint64_t output, uint64_t count_elems,
                            void* stream) {
  const int number = Number(kernel);
  const uint32_t at_most = number < kCudaAdd ? kCudaMaxSources : 1;
  if (number < 0 || num_inputs == 0 || num_inputs > at_most) return -1;
  if (number >= kCudaAdd) {
    CudaRowsArgs args = {
        .rows = {{.to = output, .from = inputs[0], .count_elems = count_elems}},
        .scale = 1,
        .num_rows = 1,
    };
    return CudaLaunchRows(&bench->driver, &bench->kernels, number, &args, stream);
  }
  CudaReduceArgs args = {
      .outputs = {output},
      .count_elems = count_elems,
      .prescale = 1,
      .postscale = 1,
      .divisor = 1,
      .num_inputs = num_inputs,
      .num_outputs = 1,
  };
  memcpy(args.inputs, inputs, num_inputs * sizeof(inputs[0]));
  return CudaLaunchReduce(&bench->driver, &bench->kernels, number - kCudaReduce, &args, stream);
}

void covey_cuda_bench_close(covey_cuda_bench* bench) {
  CudaUnloadKernels(&bench->driver, &bench->kernels);
  free(bench);
}
