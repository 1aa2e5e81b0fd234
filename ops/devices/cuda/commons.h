/* Memory of the device that processes of this host have in common (CUDA IPC), and the kernels that
 * reduce it: covey_commons of core/device/covey_device.h. Without kernels there is none of it. */
#ifndef COVEY_OPS_DEVICES_CUDA_COMMONS_H_
#define COVEY_OPS_DEVICES_CUDA_COMMONS_H_

#include "core/device/covey_device.h"
#include "ops/devices/cuda/launch.h"

typedef struct CudaCommons {
  const CudaDriver* driver;
  CudaContext context;
  CudaStream streams[2]; /* by covey_queue */
  CudaKernels kernels;
  /* Keeps what went wrong; 1 = nothing did. */
  int (*works)(void* device, int result, const char* what);
  void* device;
  covey_commons shown;
} CudaCommons;

/* Fills the last two parts; the others are the caller's. NULL: there are no kernels. The context is
 * current. */
const covey_commons* CudaOpenCommons(CudaCommons* commons, const char* image);
/* The context is current. */
void CudaCloseCommons(CudaCommons* commons);

#endif /* COVEY_OPS_DEVICES_CUDA_COMMONS_H_ */
