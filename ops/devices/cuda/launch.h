/* The kernels on the card: their module, loaded through the driver, and their launches.
 *
 * The image is text for the driver's own compiler (PTX for sm_70, which every later card takes
 * too), made by nvcc when this was built; without one it is empty and there are no kernels.
 * All calls need the device's context to be current, and none waits for the device. A function that
 * returns an int returns a CUresult.
 */
#ifndef COVEY_OPS_DEVICES_CUDA_LAUNCH_H_
#define COVEY_OPS_DEVICES_CUDA_LAUNCH_H_

#include "ops/devices/cuda/driver.h"
#include "ops/devices/cuda/kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first kernel of each family. In the first three one follows for each dtype; the casts are
 * those of float32, float16 and bfloat16 to the other two, in this order. */
enum {
  kCudaReduce = 0,
  kCudaAdd = 8,
  kCudaScale = 16,
  kCudaCast = 24,
  kCudaNumKernels = 30,
};
extern const char* const kCudaKernelNames[kCudaNumKernels];

/* Text with a zero at its end. */
extern const char kCudaImage[];

typedef struct CudaKernels {
  CudaModule module; /* NULL: there are none */
  CudaFunction functions[kCudaNumKernels];
} CudaKernels;

/* 1 = *kernels may be launched; else why not, and there are none: an empty image (`*why` NULL), or
 * what the driver refused. */
int CudaLoadKernels(const CudaDriver* driver, const char* image, CudaKernels* kernels,
                    const char** why);
void CudaUnloadKernels(const CudaDriver* driver, CudaKernels* kernels);

/* Sets args->is_aligned. */
int CudaLaunchReduce(const CudaDriver* driver, const CudaKernels* kernels, int dtype,
                     CudaReduceArgs* args, CudaStream stream);
/* `kernel`: one of kCudaAdd, kCudaScale or kCudaCast. num_rows 0: nothing is done. */
int CudaLaunchRows(const CudaDriver* driver, const CudaKernels* kernels, int kernel,
                   CudaRowsArgs* args, CudaStream stream);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_OPS_DEVICES_CUDA_LAUNCH_H_ */
