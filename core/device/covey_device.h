/* The exports of a plug-in that is a device: C, so that it can be compiled with any compiler
 * against any toolkit. core/device/plugin_device.h makes a Device of it; the contract is that of
 * core/device/device.h, whose functions these are.
 *
 * The plug-in exports covey_open_device and nothing else of this header's. record, give_back and
 * failure are called by any thread, the others by one thread at a time. The calling thread's
 * current device is as it was when a function returns.
 */
#ifndef COVEY_CORE_DEVICE_COVEY_DEVICE_H_
#define COVEY_CORE_DEVICE_COVEY_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#include "core/device/covey_circuits.h"
#include "core/device/covey_commons.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COVEY_DEVICE_ABI = 5 };

typedef enum covey_queue { COVEY_TO_HOST = 0, COVEY_TO_DEVICE = 1 } covey_queue;

typedef struct covey_device {
  void* self;
  void* (*record)(void* self, void* stream); /* NULL: it failed */
  void (*give_back)(void* self, void* event);
  int (*is_ready)(void* self, void* event); /* 1 = completed, 0 = not yet, -1 = it failed */
  int (*copy)(void* self, covey_queue queue, void* to, const void* from, size_t length); /* 0: ok */
  uint64_t (*mark)(void* self, covey_queue queue);                                /* 0: it failed */
  int (*is_reached)(void* self, covey_queue queue, uint64_t mark);                /* as is_ready */
  int (*order_after)(void* self, void* stream, covey_queue queue, uint64_t mark); /* 0: ok */
  int (*pin)(void* self, void* memory, size_t length);                            /* 0: ok */
  void (*unpin)(void* self, void* memory);
  void (*drain)(void* self);
  const char* (*failure)(void* self); /* "": it has not failed; else it stays as it is */
  void (*close)(void* self);
  uint64_t (*synchronous_calls)(void* self); /* any thread */
  /* Both go with the device; NULL: there are none. */
  const covey_commons* commons;
  const covey_circuits* circuits;
} covey_device;

/* Opens the device number `index`; fills *device. 0, or 1 with one sentence in `error`. `abi`: the
 * COVEY_DEVICE_ABI of the caller; another than the plug-in's is an error. index -1: only says
 * whether there is any device; *device stays as it is. */
typedef int covey_open_device_function(uint32_t abi, int32_t index, covey_device* device,
                                       char* error, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_DEVICE_COVEY_DEVICE_H_ */
