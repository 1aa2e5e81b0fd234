/* An option of a device's plug-in, besides copies (core/device/covey_device.h): collectives that
 * the devices of a group do among themselves, over a *circuit* made once for the group. C, as the
 * rest of a plug-in; the contract is that of core/device/communicators.h, which calls it a
 * communicator and has these functions.
 *
 * One thread at a time calls them; none waits. The plug-in does long work in a thread of its own.
 */
#ifndef COVEY_CORE_DEVICE_COVEY_CIRCUITS_H_
#define COVEY_CORE_DEVICE_COVEY_CIRCUITS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COVEY_CIRCUIT_ID_BYTES = 128 };

typedef struct covey_circuit covey_circuit;

/* Memory of the device. `count`: elements of `to` (allreduce, broadcast: of `from` too). */
typedef struct covey_circuit_part {
  const void* from;
  void* to;
  size_t count;
} covey_circuit_part;

typedef struct covey_circuit_work {
  int32_t kind;  /* covey_kind: allreduce, broadcast or reducescatter */
  int32_t dtype; /* covey_dtype, below bool */
  int32_t op;    /* covey_op; average of floating point only */
  int32_t root;  /* broadcast: by group index */
  const covey_circuit_part* parts;
  size_t num_parts;
} covey_circuit_work;

/* int answers: 1 = yes, 0 = not yet, -1 = it failed; of what does something: 0 = ok. */
typedef struct covey_circuits {
  void* self;
  uint64_t device; /* whose memory it is: equal for two ranks that use one device */
  int (*offers)(void* self);
  const char* (*trouble)(void* self);
  int (*make_id)(void* self, char id[COVEY_CIRCUIT_ID_BYTES]);
  covey_circuit* (*open)(void* self, const char id[COVEY_CIRCUIT_ID_BYTES], int32_t me,
                         int32_t size); /* NULL: no memory */
  int (*is_ready)(void* self, covey_circuit* circuit);
  int (*after)(void* self, covey_circuit* circuit, void* event);
  int (*launch)(void* self, covey_circuit* circuit, const covey_circuit_work* work);
  int (*is_launched)(void* self, covey_circuit* circuit, uint64_t* mark);
  int (*is_done)(void* self, covey_circuit* circuit, uint64_t mark);
  void (*abort)(void* self, covey_circuit* circuit);
  int (*is_over)(void* self, covey_circuit* circuit);
  void (*give_up)(void* self, covey_circuit* circuit);
  const char* (*failure)(void* self, covey_circuit* circuit);
} covey_circuits;

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_DEVICE_COVEY_CIRCUITS_H_ */
