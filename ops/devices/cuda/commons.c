#include "ops/devices/cuda/commons.h"

#include <string.h>

static int Enter(CudaCommons* commons) {
  return commons->works(commons->device, commons->driver->push_context(commons->context),
                        "use its context");
}

static void Leave(CudaCommons* commons) {
  CudaContext popped;
  commons->driver->pop_context(&popped);
}

static void* Alloc(void* self, size_t length, covey_commons_key* key) {
  CudaCommons* commons = self;
  CudaAddress memory = 0;
  CudaIpcHandle handle;
  if (!Enter(commons)) return NULL;
  /* Neither is a failure of the device: it is full, or not every system lets processes share. */
  int result = CudaWaits(commons->driver)->alloc(&memory, length);
  if (result == kCudaSuccess) {
    result = commons->driver->get_handle(&handle, memory);
    if (result != kCudaSuccess) CudaWaits(commons->driver)->free(memory);
  }
  Leave(commons);
  if (result != kCudaSuccess) return NULL;
  memcpy(key->bytes, handle.bytes, sizeof(key->bytes));
  return (void*)memory;
}

static void Free(void* self, void* memory) {
  CudaCommons* commons = self;
  if (!Enter(commons)) return;
  CudaWaits(commons->driver)->free((CudaAddress)memory);
  Leave(commons);
}

static void* Open(void* self, const covey_commons_key* key) {
  CudaCommons* commons = self;
  CudaAddress memory = 0;
  CudaIpcHandle handle;
  memcpy(handle.bytes, key->bytes, sizeof(handle.bytes));
  if (!Enter(commons)) return NULL;
  const int result =
      CudaWaits(commons->driver)->open_handle(&memory, handle, kCudaIpcLazyEnablePeerAccess);
  Leave(commons);
  return result == kCudaSuccess ? (void*)memory : NULL;
}

static void Close(void* self, void* memory) {
  CudaCommons* commons = self;
  if (!Enter(commons)) return;
  CudaWaits(commons->driver)->close_handle((CudaAddress)memory);
  Leave(commons);
}

static int Copy(void* self, int32_t queue, void* to, const void* from, size_t length) {
  CudaCommons* commons = self;
  if (!Enter(commons)) return 1;
  const int result = commons->driver->copy_within((CudaAddress)to, (CudaAddress)from, length,
                                                  commons->streams[queue]);
  const int ok = commons->works(commons->device, result, "copy a tensor");
  Leave(commons);
  return ok ? 0 : 1;
}

static int Reduce(void* self, int32_t queue, const covey_commons_reduction* told) {
  CudaCommons* commons = self;
  CudaReduceArgs args = {.count_elems = told->count_elems,
                         .prescale = told->prescale,
                         .postscale = told->postscale,
                         .divisor = told->divisor,
                         .num_inputs = (uint32_t)told->num_inputs,
                         .num_outputs = (uint32_t)told->num_outputs,
                         .op = (uint32_t)told->op};
  for (size_t i = 0; i < told->num_inputs; ++i) args.inputs[i] = (uint64_t)told->inputs[i];
  for (size_t i = 0; i < told->num_outputs; ++i) args.outputs[i] = (uint64_t)told->outputs[i];
  if (!Enter(commons)) return 1;
  const int result = CudaLaunchReduce(commons->driver, &commons->kernels, told->dtype, &args,
                                      commons->streams[queue]);
  const int ok = commons->works(commons->device, result, "launch a kernel");
  Leave(commons);
  return ok ? 0 : 1;
}

const covey_commons* CudaOpenCommons(CudaCommons* commons, const char* image) {
  const char* why = NULL;
  if (!CudaLoadKernels(commons->driver, image, &commons->kernels, &why)) return NULL;
  commons->shown = (covey_commons){.self = commons,
                                   .alloc = Alloc,
                                   .free = Free,
                                   .open = Open,
                                   .close = Close,
                                   .copy = Copy,
                                   .reduce = Reduce};
  return &commons->shown;
}

void CudaCloseCommons(CudaCommons* commons) {
  if (commons->driver != NULL) CudaUnloadKernels(commons->driver, &commons->kernels);
}
