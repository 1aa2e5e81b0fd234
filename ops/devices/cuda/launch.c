#include "ops/devices/cuda/launch.h"

#include <string.h>

const char* const kCudaKernelNames[kCudaNumKernels] = {
    "covey_reduce_float32",
    "covey_reduce_float64",
    "covey_reduce_float16",
    "covey_reduce_bfloat16",
    "covey_reduce_uint8",
    "covey_reduce_int8",
    "covey_reduce_int32",
    "covey_reduce_int64",
    "covey_add_float32",
    "covey_add_float64",
    "covey_add_float16",
    "covey_add_bfloat16",
    "covey_add_uint8",
    "covey_add_int8",
    "covey_add_int32",
    "covey_add_int64",
    "covey_scale_float32",
    "covey_scale_float64",
    "covey_scale_float16",
    "covey_scale_bfloat16",
    "covey_scale_uint8",
    "covey_scale_int8",
    "covey_scale_int32",
    "covey_scale_int64",
    "covey_cast_float32_float16",
    "covey_cast_float32_bfloat16",
    "covey_cast_float16_float32",
    "covey_cast_float16_bfloat16",
    "covey_cast_bfloat16_float32",
    "covey_cast_bfloat16_float16",
};

enum {
  kThreads = 256,    /* of a block */
  kMaxBlocks = 1024, /* of a launch, more or less: enough for the largest card. Not measured. */
  kElemsOfThread = 4,
  kQuadBytes = 16,
};

int CudaLoadKernels(const CudaDriver* driver, const char* image, CudaKernels* kernels,
                    const char** why) {
  memset(kernels, 0, sizeof(*kernels));
  *why = NULL;
  if (image[0] == '\0') return 0;
  int result = CudaWaits(driver)->load_module(&kernels->module, image);
  if (result != kCudaSuccess) kernels->module = NULL;
  for (int i = 0; result == kCudaSuccess && i < kCudaNumKernels; ++i)
    result = driver->get_function(&kernels->functions[i], kernels->module, kCudaKernelNames[i]);
  if (result == kCudaSuccess) return 1;
  if (driver->error_text(result, why) != kCudaSuccess || *why == NULL) *why = "unknown";
  CudaUnloadKernels(driver, kernels);
  return 0;
}

void CudaUnloadKernels(const CudaDriver* driver, CudaKernels* kernels) {
  if (kernels->module != NULL) CudaWaits(driver)->unload_module(kernels->module);
  kernels->module = NULL;
}

/* Blocks for `elems` elements, `at_most` but at least one. */
static unsigned BlocksFor(uint64_t elems, unsigned at_most) {
  const uint64_t blocks = elems / (kThreads * kElemsOfThread) + 1;
  return blocks < at_most ? (unsigned)blocks : at_most;
}

static int Launch(const CudaDriver* driver, CudaFunction function, unsigned blocks, unsigned rows,
                  void* args, CudaStream stream) {
  void* parameters[] = {args};
  return driver->launch(function, blocks, rows, 1, kThreads, 1, 1, 0, stream, parameters, NULL);
}

int CudaLaunchReduce(const CudaDriver* driver, const CudaKernels* kernels, int dtype,
                     CudaReduceArgs* args, CudaStream stream) {
  if (args->count_elems == 0) return kCudaSuccess;
  uint64_t bits = 0;
  for (uint32_t k = 0; k < args->num_inputs; ++k) bits |= args->inputs[k];
  for (uint32_t k = 0; k < args->num_outputs; ++k) bits |= args->outputs[k];
  args->is_aligned = bits % kQuadBytes == 0;
  return Launch(driver, kernels->functions[kCudaReduce + dtype],
                BlocksFor(args->count_elems, kMaxBlocks), 1, args, stream);
}

int CudaLaunchRows(const CudaDriver* driver, const CudaKernels* kernels, int kernel,
                   CudaRowsArgs* args, CudaStream stream) {
  if (args->num_rows == 0) return kCudaSuccess;
  uint64_t longest = 0;
  for (uint32_t r = 0; r < args->num_rows; ++r)
    if (args->rows[r].count_elems > longest) longest = args->rows[r].count_elems;
  const unsigned blocks = BlocksFor(longest, kMaxBlocks / args->num_rows);
  return Launch(driver, kernels->functions[kernel], blocks, args->num_rows, args, stream);
}
