#include "ops/devices/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char* const kCudaDriverNames[] = {
    "cuStreamSynchronize",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuGetErrorString",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuIpcGetMemHandle",
    "cuMemcpyDtoDAsync_v2",
};

enum { kCount = sizeof(kCudaDriverNames) / sizeof(kCudaDriverNames[0]) };

int CudaOpenDriver(CudaDriver* driver, char* error, size_t capacity) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(error, capacity, "there is no driver of CUDA on this machine (%s)", dlerror());
    return 1;
  }
  void* found[kCount];
  for (int i = 0; i < kCount; ++i) {
    found[i] = dlsym(library, kCudaDriverNames[i]);
    if (found[i] != NULL) continue;
    snprintf(error, capacity, "the driver of CUDA on this machine has no function %s",
             kCudaDriverNames[i]);
    return 1;
  }
  memcpy(driver, found, sizeof(found));
  driver->waits = NULL;
  return 0;
}
