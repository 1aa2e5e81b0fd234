/* An option of a device's plug-in, besides copies (core/device/covey_device.h): memory of the
 * device that other processes of this host open, and arithmetic on it. C, as the rest of a plug-in;
 * the contract is that of core/device/ipc_memory.h, whose functions these are.
 */
#ifndef COVEY_CORE_DEVICE_COVEY_COMMONS_H_
#define COVEY_CORE_DEVICE_COVEY_COMMONS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COVEY_COMMONS_KEY_BYTES = 64, COVEY_COMMONS_MAX_SOURCES = 64 };

typedef struct covey_commons_key {
  char bytes[COVEY_COMMONS_KEY_BYTES];
} covey_commons_key;

/* Addresses are of the device; dtype (below bool) and op (not average) as in covey.h. */
typedef struct covey_commons_reduction {
  int32_t dtype;
  int32_t op;
  double prescale;
  double postscale;
  int32_t divisor;
  const void* const* inputs;
  size_t num_inputs;
  void* const* outputs;
  size_t num_outputs;
  size_t count_elems;
} covey_commons_reduction;

/* `queue`: a covey_queue. A function that returns an int returns 0 when it worked. */
typedef struct covey_commons {
  void* self;
  void* (*alloc)(void* self, size_t length, covey_commons_key* key); /* NULL: there is none left */
  void (*free)(void* self, void* memory);
  void* (*open)(void* self, const covey_commons_key* key); /* NULL: it cannot be reached */
  void (*close)(void* self, void* memory);
  int (*copy)(void* self, int32_t queue, void* to, const void* from, size_t length);
  int (*reduce)(void* self, int32_t queue, const covey_commons_reduction* reduction);
} covey_commons;

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_DEVICE_COVEY_COMMONS_H_ */
