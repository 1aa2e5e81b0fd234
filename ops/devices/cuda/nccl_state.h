/* The shared state of the two threads of NCCL's circuits. Private to nccl_*.c.
 *
 * Whatever may take long runs in a thread of its own, the *mechanic* (nccl_mechanic.c): finding the
 * library, making an id, beginning a communicator, watching it until it is made, aborting, and
 * taking down. The thread that drives (nccl_circuits.c) only launches and asks. A communicator is
 * the mechanic's but in kReady, when it is the driver's; `state`, under the mutex, says whose.
 *
 *   kNew -> kMaking -> kReady, any of them -> kFailed, all -> kEnding -> kOver (abort, close)
 *
 * NCCL may not return from an abort: its kernels were told to end before. The mechanic then is
 * stuck, and so at the close it is left, with all that it may touch.
 */
#ifndef COVEY_OPS_DEVICES_CUDA_NCCL_STATE_H_
#define COVEY_OPS_DEVICES_CUDA_NCCL_STATE_H_

#include <pthread.h>
#include <stdint.h>

#include "core/device/covey_circuits.h"
#include "ops/devices/cuda/nccl.h"

typedef enum State { kNew, kMaking, kReady, kFailed, kEnding, kOver } State;
typedef enum Found { kUnasked, kWanted, kThere, kAbsent } Found;

typedef struct Marked {
  struct Marked* next;
  CudaEvent event;
  uint64_t number;
} Marked;

struct covey_circuit {
  struct covey_circuit* next;
  /* Protected by the mutex. */
  State state;
  int is_aborted;
  char failure[256]; /* written once */
  /* The communicator of the state. */
  NcclComm comm;
  NcclId id;
  int me, size;
  /* The driver's. */
  CudaStream stream;
  Marked* first; /* oldest */
  Marked* last;
  uint64_t launched, done;
};

typedef struct Circuits {
  covey_circuits shown;
  const CudaDriver* driver;
  CudaContext context;
  pthread_mutex_t mutex;
  int bell; /* an eventfd, for the mechanic */
  pthread_t mechanic;
  int has_mechanic; /* the driver's */
  /* Written by the mechanic before kThere. */
  NcclLibrary nccl;
  /* Protected by the mutex. */
  Found library, id;
  NcclId made_id;
  char trouble[256];
  int closes, has_ended; /* it is to end; the mechanic has */
  int is_stuck;          /* a circuit was given up */
  struct covey_circuit* circuits;
} Circuits;

/* The device's context, for NCCL and the driver. 0: it is gone. */
int NcclEnter(Circuits* c);
void NcclLeave(Circuits* c);

/* The circuit fails, for the first time or again. Always 1. */
int NcclFails(Circuits* c, covey_circuit* x, const char* what, int result);
int NcclDriverFails(Circuits* c, covey_circuit* x, const char* what, int result);

void* NcclMechanic(void* circuits);

#endif /* COVEY_OPS_DEVICES_CUDA_NCCL_STATE_H_ */
