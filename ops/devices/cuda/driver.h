/* The part of CUDA's driver that the plug-in uses, found at run time in libcuda.so.1.
 *
 * Declared here and not taken from cuda.h, so that the plug-in is built everywhere, once, and needs
 * no toolkit: the driver keeps these functions as they are (those with _v2 since CUDA 4). Where
 * there is a cuda.h, tests/golden/cuda_driver_test.py holds the declarations against it.
 */
#ifndef COVEY_OPS_DEVICES_CUDA_DRIVER_H_
#define COVEY_OPS_DEVICES_CUDA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CUresult. */
enum { kCudaSuccess = 0, kCudaNotReady = 600 };
/* Flags. */
enum {
  kCudaStreamNonBlocking = 1,
  kCudaEventDisableTiming = 2,
  kCudaHostRegisterPortable = 1,
  kCudaIpcLazyEnablePeerAccess = 1
};

typedef struct CUctx_st* CudaContext;
typedef struct CUstream_st* CudaStream; /* cudaStream_t too */
typedef struct CUevent_st* CudaEvent;   /* cudaEvent_t too */
typedef struct CUmod_st* CudaModule;
typedef struct CUfunc_st* CudaFunction;
typedef unsigned long long CudaAddress; /* CUdeviceptr */
typedef struct CudaIpcHandle {          /* CUipcMemHandle */
  char bytes[64];
} CudaIpcHandle;

/* Functions that may wait for the device, or take as long: the others never do. */
typedef struct CudaWaiting {
  int (*synchronize)(CudaStream stream);
  int (*register_host)(void* memory, size_t length, unsigned flags);
  int (*unregister_host)(void* memory);
  int (*load_module)(CudaModule* module, const void* image);
  int (*unload_module)(CudaModule module);
  int (*alloc)(CudaAddress* memory, size_t length);
  int (*free)(CudaAddress memory);
  int (*open_handle)(CudaAddress* memory, CudaIpcHandle handle, unsigned flags);
  int (*close_handle)(CudaAddress memory);
} CudaWaiting;

typedef struct CudaDriver {
  CudaWaiting waiting; /* through CudaWaits */
  int (*init)(unsigned flags);
  int (*device_count)(int* count);
  int (*device)(int* device, int index);
  int (*retain_context)(CudaContext* context, int device);
  int (*release_context)(int device);
  int (*push_context)(CudaContext context);
  int (*pop_context)(CudaContext* context);
  int (*create_stream)(CudaStream* stream, unsigned flags);
  int (*destroy_stream)(CudaStream stream);
  int (*wait_event)(CudaStream stream, CudaEvent event, unsigned flags);
  int (*create_event)(CudaEvent* event, unsigned flags);
  int (*destroy_event)(CudaEvent event);
  int (*record_event)(CudaEvent event, CudaStream stream);
  int (*query_event)(CudaEvent event);
  int (*copy_to_host)(void* to, CudaAddress from, size_t length, CudaStream stream);
  int (*copy_to_device)(CudaAddress to, const void* from, size_t length, CudaStream stream);
  int (*error_text)(int error, const char** text);
  int (*get_function)(CudaFunction* function, CudaModule module, const char* name);
  int (*launch)(CudaFunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                CudaStream stream, void** parameters, void** extra);
  int (*get_handle)(CudaIpcHandle* handle, CudaAddress memory);
  int (*copy_within)(CudaAddress to, CudaAddress from, size_t length, CudaStream stream);
  uint64_t* waits; /* calls of CudaWaits, by any thread; NULL: not counted */
} CudaDriver;

/* Their names in the library, in the order of the struct. */
extern const char* const kCudaDriverNames[offsetof(CudaDriver, waits) / sizeof(void (*)(void))];

/* For one call of one of its functions, which is counted. */
static inline const CudaWaiting* CudaWaits(const CudaDriver* driver) {
  if (driver->waits != NULL) __atomic_fetch_add(driver->waits, 1, __ATOMIC_RELAXED);
  return &driver->waiting;
}

/* Opens the library; calls are not counted. 0, or 1 with one sentence in `error`. */
int CudaOpenDriver(CudaDriver* driver, char* error, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_OPS_DEVICES_CUDA_DRIVER_H_ */
