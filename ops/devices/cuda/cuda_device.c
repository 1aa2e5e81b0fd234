/* A device of CUDA as core/device/covey_device.h wants it: two streams of its own for copies, and
 * events that mark how far they are.
 *
 * Works in the device's primary context, which frameworks use too, so their streams, events and
 * addresses are good here. Every call pushes that context and pops it: the calling thread is a
 * user's, as often as not, and keeps its current device.
 *
 * One thread at a time calls what belongs to a queue. Events are lent out by any thread, and so is
 * the failure told: a mutex is around both.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/covey_device.h"
#include "ops/devices/cuda/commons.h"
#include "ops/devices/cuda/driver.h"
#include "ops/devices/cuda/nccl_circuits.h"

/* An event that was recorded in a queue's stream and has not been seen to complete. */
typedef struct Marked {
  struct Marked* next;
  CudaEvent event;
  uint64_t number;
} Marked;

typedef struct Queue {
  CudaStream stream;
  Marked* first; /* oldest */
  Marked* last;
  uint64_t recorded; /* the last mark's number */
  uint64_t reached;
} Queue;

typedef struct Cuda {
  CudaDriver driver;
  int device;
  CudaContext context;
  Queue queues[2];
  CudaCommons commons;
  const covey_circuits* circuits;
  uint64_t waits; /* atomic */
  pthread_mutex_t mutex;
  /* Protected by the mutex. */
  CudaEvent* spare; /* [spare_count] events */
  size_t spare_count, spare_capacity;
  char failure[256]; /* written once */
} Cuda;

/* 1 = it worked; else the failure is kept, the first one for ever. */
static int Works(Cuda* cuda, int result, const char* what) {
  if (result == kCudaSuccess) return 1;
  const char* text = NULL;
  if (cuda->driver.error_text(result, &text) != kCudaSuccess || text == NULL) text = "unknown";
  pthread_mutex_lock(&cuda->mutex);
  if (cuda->failure[0] == '\0')
    snprintf(cuda->failure, sizeof(cuda->failure), "CUDA cannot %s: %s (error %d)", what, text,
             result);
  pthread_mutex_unlock(&cuda->mutex);
  return 0;
}

static int HasFailed(Cuda* cuda) {
  pthread_mutex_lock(&cuda->mutex);
  const int failed = cuda->failure[0] != '\0';
  pthread_mutex_unlock(&cuda->mutex);
  return failed;
}

/* Begins a call: 0 = the device has failed, and nothing is to be done. */
static int Enter(Cuda* cuda) {
  return !HasFailed(cuda) &&
         Works(cuda, cuda->driver.push_context(cuda->context), "use its context");
}

static void Leave(Cuda* cuda) {
  CudaContext popped;
  cuda->driver.pop_context(&popped);
}

static CudaEvent TakeEvent(Cuda* cuda) {
  CudaEvent event = NULL;
  pthread_mutex_lock(&cuda->mutex);
  if (cuda->spare_count > 0) event = cuda->spare[--cuda->spare_count];
  pthread_mutex_unlock(&cuda->mutex);
  if (event != NULL) return event;
  const int made = cuda->driver.create_event(&event, kCudaEventDisableTiming);
  return Works(cuda, made, "make an event") ? event : NULL;
}

static void GiveBack(void* self, void* event) {
  Cuda* cuda = self;
  pthread_mutex_lock(&cuda->mutex);
  if (cuda->spare_count == cuda->spare_capacity) {
    const size_t capacity = cuda->spare_capacity * 2 + 64;
    CudaEvent* spare = realloc(cuda->spare, capacity * sizeof(CudaEvent));
    if (spare != NULL) {
      cuda->spare = spare;
      cuda->spare_capacity = capacity;
    }
  }
  if (cuda->spare_count < cuda->spare_capacity) cuda->spare[cuda->spare_count++] = event;
  pthread_mutex_unlock(&cuda->mutex);
}

static void* Record(void* self, void* stream) {
  Cuda* cuda = self;
  if (!Enter(cuda)) return NULL;
  CudaEvent event = TakeEvent(cuda);
  if (event != NULL && !Works(cuda, cuda->driver.record_event(event, stream),
                              "record an event on the tensor's stream"))
    event = NULL;
  Leave(cuda);
  return event;
}

/* Without a context: an event knows its own. */
static int IsReady(void* self, void* event) {
  Cuda* cuda = self;
  if (HasFailed(cuda)) return -1;
  const int result = cuda->driver.query_event(event);
  if (result == kCudaNotReady) return 0;
  return Works(cuda, result, "compute a tensor") ? 1 : -1;
}

static int Copy(void* self, covey_queue queue, void* to, const void* from, size_t length) {
  Cuda* cuda = self;
  if (!Enter(cuda)) return 1;
  const CudaStream stream = cuda->queues[queue].stream;
  const int result = queue == COVEY_TO_HOST
                         ? cuda->driver.copy_to_host(to, (CudaAddress)from, length, stream)
                         : cuda->driver.copy_to_device((CudaAddress)to, from, length, stream);
  const int ok = Works(cuda, result, "copy a tensor");
  Leave(cuda);
  return ok ? 0 : 1;
}

static uint64_t Mark(void* self, covey_queue which) {
  Cuda* cuda = self;
  Queue* queue = &cuda->queues[which];
  if (!Enter(cuda)) return 0;
  Marked* marked = malloc(sizeof(Marked));
  CudaEvent event = marked == NULL ? NULL : TakeEvent(cuda);
  const int ok = event != NULL &&
                 Works(cuda, cuda->driver.record_event(event, queue->stream), "record an event");
  Leave(cuda);
  if (!ok) {
    free(marked);
    return 0;
  }
  *marked = (Marked){.next = NULL, .event = event, .number = ++queue->recorded};
  if (queue->first == NULL) queue->first = marked;
  if (queue->last != NULL) queue->last->next = marked;
  queue->last = marked;
  return marked->number;
}

static int IsReached(void* self, covey_queue which, uint64_t mark) {
  Cuda* cuda = self;
  Queue* queue = &cuda->queues[which];
  while (queue->reached < mark && queue->first != NULL) {
    Marked* marked = queue->first;
    const int ready = IsReady(cuda, marked->event);
    if (ready != 1) return ready;
    queue->reached = marked->number;
    queue->first = marked->next;
    if (queue->first == NULL) queue->last = NULL;
    GiveBack(cuda, marked->event);
    free(marked);
  }
  return queue->reached >= mark ? 1 : -1;
}

static int OrderAfter(void* self, void* stream, covey_queue which, uint64_t mark) {
  Cuda* cuda = self;
  const Queue* queue = &cuda->queues[which];
  if (HasFailed(cuda)) return 1;
  const Marked* marked = queue->first;
  while (marked != NULL && marked->number < mark) marked = marked->next;
  if (queue->reached >= mark || marked == NULL) return 0; /* it is over */
  if (!Enter(cuda)) return 1;
  const int ok = Works(cuda, cuda->driver.wait_event(stream, marked->event, 0),
                       "order the tensor's stream after the result");
  Leave(cuda);
  return ok ? 0 : 1;
}

static int Pin(void* self, void* memory, size_t length) {
  Cuda* cuda = self;
  if (!Enter(cuda)) return 1;
  /* Not a failure of the device: a limit of the machine, and copies are slow then. */
  const int result =
      CudaWaits(&cuda->driver)->register_host(memory, length, kCudaHostRegisterPortable);
  Leave(cuda);
  return result == kCudaSuccess ? 0 : 1;
}

static void Unpin(void* self, void* memory) {
  Cuda* cuda = self;
  if (!Enter(cuda)) return;
  CudaWaits(&cuda->driver)->unregister_host(memory);
  Leave(cuda);
}

static void Drain(void* self) {
  Cuda* cuda = self;
  if (!Enter(cuda)) return;
  for (int i = 0; i < 2; ++i)
    if (!Works(cuda, CudaWaits(&cuda->driver)->synchronize(cuda->queues[i].stream),
               "end its copies"))
      break;
  Leave(cuda);
}

static const char* Failure(void* self) {
  Cuda* cuda = self;
  return HasFailed(cuda) ? cuda->failure : "";
}

static uint64_t SynchronousCalls(void* self) {
  Cuda* cuda = self;
  return __atomic_load_n(&cuda->waits, __ATOMIC_RELAXED);
}

static void Close(void* self) {
  Cuda* cuda = self;
  CudaContext popped;
  if (!NcclCloseCircuits(cuda->circuits)) return; /* a thread that never ends may use all of it */
  const int entered =
      cuda->context != NULL && cuda->driver.push_context(cuda->context) == kCudaSuccess;
  for (int i = 0; i < 2; ++i) {
    Queue* queue = &cuda->queues[i];
    while (queue->first != NULL) {
      Marked* marked = queue->first;
      queue->first = marked->next;
      GiveBack(cuda, marked->event);
      free(marked);
    }
    if (entered && queue->stream != NULL) cuda->driver.destroy_stream(queue->stream);
  }
  for (size_t i = 0; entered && i < cuda->spare_count; ++i)
    cuda->driver.destroy_event(cuda->spare[i]);
  if (entered) CudaCloseCommons(&cuda->commons);
  if (entered) cuda->driver.pop_context(&popped);
  if (cuda->context != NULL) cuda->driver.release_context(cuda->device);
  pthread_mutex_destroy(&cuda->mutex);
  free(cuda->spare);
  free(cuda);
}

/* The functions of Works that are used outside. */
static int WorksFor(void* device, int result, const char* what) {
  return Works(device, result, what);
}

/* NULL: there is nothing that processes could have in common. */
static const covey_commons* OpenCommons(Cuda* cuda) {
  if (!Enter(cuda)) return NULL;
  cuda->commons = (CudaCommons){.driver = &cuda->driver,
                                .context = cuda->context,
                                .streams = {cuda->queues[0].stream, cuda->queues[1].stream},
                                .works = WorksFor,
                                .device = cuda};
  const covey_commons* opened = CudaOpenCommons(&cuda->commons, kCudaImage);
  Leave(cuda);
  return opened;
}

/* 1 = opened; else `cuda->failure` says why. */
static int Open(Cuda* cuda, int32_t index) {
  const CudaDriver* driver = &cuda->driver;
  int count = 0;
  if (!Works(cuda, driver->init(0), "be used") ||
      !Works(cuda, driver->device_count(&count), "count its devices"))
    return 0;
  if (count == 0 || index >= count) {
    snprintf(cuda->failure, sizeof(cuda->failure),
             "CUDA has %d devices here that this process may see (CUDA_VISIBLE_DEVICES)", count);
    return 0;
  }
  if (index < 0) return 1;
  if (!Works(cuda, driver->device(&cuda->device, index), "find the device") ||
      !Works(cuda, driver->retain_context(&cuda->context, cuda->device), "open the device") ||
      !Enter(cuda))
    return 0;
  for (int i = 0; i < 2; ++i)
    if (!Works(cuda, driver->create_stream(&cuda->queues[i].stream, kCudaStreamNonBlocking),
               "make a stream"))
      break;
  Leave(cuda);
  return !HasFailed(cuda);
}

__attribute__((visibility("default"))) int covey_open_device(uint32_t abi, int32_t index,
                                                             covey_device* device, char* error,
                                                             size_t capacity) {
  if (abi != COVEY_DEVICE_ABI) {
    snprintf(error, capacity, "it was built for another version of Covey (devices %d, this is %u)",
             COVEY_DEVICE_ABI, abi);
    return 1;
  }
  Cuda* cuda = calloc(1, sizeof(Cuda));
  if (cuda == NULL) {
    snprintf(error, capacity, "no memory");
    return 1;
  }
  pthread_mutex_init(&cuda->mutex, NULL);
  if (CudaOpenDriver(&cuda->driver, error, capacity) != 0) {
    Close(cuda);
    return 1;
  }
  cuda->driver.waits = &cuda->waits;
  const int opened = Open(cuda, index);
  if (!opened) snprintf(error, capacity, "%s", cuda->failure);
  if (!opened || index < 0) {
    Close(cuda);
    return opened ? 0 : 1;
  }
  cuda->circuits = NcclOpenCircuits(&cuda->driver, cuda->context, cuda->device);
  *device = (covey_device){.self = cuda,
                           .record = Record,
                           .give_back = GiveBack,
                           .is_ready = IsReady,
                           .copy = Copy,
                           .mark = Mark,
                           .is_reached = IsReached,
                           .order_after = OrderAfter,
                           .pin = Pin,
                           .unpin = Unpin,
                           .drain = Drain,
                           .failure = Failure,
                           .close = Close,
                           .synchronous_calls = SynchronousCalls,
                           .commons = OpenCommons(cuda),
                           .circuits = cuda->circuits};
  return 0;
}
