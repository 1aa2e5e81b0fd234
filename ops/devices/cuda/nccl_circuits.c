/* Communicators of NCCL as core/device/covey_circuits.h wants circuits: what the thread that drives
 * does. See nccl_state.h for the other.
 *
 * Each circuit has a stream, on which its work is done in order, and which comes after the user's
 * events. A communicator that does not wait (blocking = 0) may hand work to the stream later than
 * it takes it: only what it says is over may be marked by an event.
 */
#include "ops/devices/cuda/nccl_circuits.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ops/devices/cuda/nccl_state.h"

enum { kLookMs = 1, kLooks = 30000, kLooksIfStuck = 10 }; /* at the close */

static void Ring(const Circuits* c) {
  const uint64_t one = 1;
  if (c->bell >= 0 && write(c->bell, &one, sizeof(one)) < 0) return; /* it rings already */
}

static State StateOf(Circuits* c, covey_circuit* x) {
  pthread_mutex_lock(&c->mutex);
  const State state = x->state;
  pthread_mutex_unlock(&c->mutex);
  return state;
}

/* Mutex held. */
static void Ask(Circuits* c, Found* what) {
  if (*what != kUnasked) return;
  if (!c->has_mechanic) c->has_mechanic = pthread_create(&c->mechanic, NULL, NcclMechanic, c) == 0;
  if (!c->has_mechanic) snprintf(c->trouble, sizeof(c->trouble), "no thread can be made for NCCL");
  *what = c->has_mechanic ? kWanted : kAbsent;
  Ring(c);
}

static int Answer(Found found) { return found == kThere ? 1 : found == kAbsent ? -1 : 0; }

static int Offers(void* self) {
  Circuits* c = self;
  pthread_mutex_lock(&c->mutex);
  if (c->shown.device == 0 && c->library == kUnasked) {
    snprintf(c->trouble, sizeof(c->trouble), "the driver does not tell devices apart");
    c->library = kAbsent;
  }
  Ask(c, &c->library);
  const int answer = Answer(c->library);
  pthread_mutex_unlock(&c->mutex);
  return answer;
}

/* Written before what asks for it is told so. */
static const char* Trouble(void* self) { return ((Circuits*)self)->trouble; }

static int TakeId(void* self, char id[COVEY_CIRCUIT_ID_BYTES]) {
  Circuits* c = self;
  pthread_mutex_lock(&c->mutex);
  Ask(c, &c->id);
  const int answer = Answer(c->id);
  if (answer == 1) {
    memcpy(id, c->made_id.bytes, COVEY_CIRCUIT_ID_BYTES);
    c->id = kUnasked;
  }
  pthread_mutex_unlock(&c->mutex);
  return answer;
}

static covey_circuit* OpenOne(void* self, const char id[COVEY_CIRCUIT_ID_BYTES], int32_t me,
                              int32_t size) {
  Circuits* c = self;
  covey_circuit* x = calloc(1, sizeof(*x));
  if (x == NULL) return NULL;
  memcpy(x->id.bytes, id, COVEY_CIRCUIT_ID_BYTES);
  x->me = me;
  x->size = size;
  pthread_mutex_lock(&c->mutex);
  x->next = c->circuits;
  c->circuits = x;
  Ring(c);
  pthread_mutex_unlock(&c->mutex);
  return x;
}

static int IsReady(void* self, covey_circuit* x) {
  const State state = StateOf(self, x);
  return state == kReady ? 1 : state < kReady ? 0 : -1;
}

static int After(void* self, covey_circuit* x, void* event) {
  Circuits* c = self;
  if (StateOf(c, x) != kReady || !NcclEnter(c)) return 1;
  const int result = c->driver->wait_event(x->stream, event, 0);
  NcclLeave(c);
  return result == kCudaSuccess ? 0 : NcclDriverFails(c, x, "wait for a tensor", result);
}

/* By covey_dtype and covey_op. */
static const int kTypes[] = {kNcclFloat32, kNcclFloat64, kNcclFloat16, kNcclBfloat16,
                             kNcclUint8,   kNcclInt8,    kNcclInt32,   kNcclInt64};
static const int kOps[] = {kNcclSum, kNcclAvg, kNcclMin, kNcclMax, kNcclProd};
enum { kAllreduce = 0, kBroadcast = 1, kReducescatter = 4 }; /* covey_kind */
enum { kAverage = 1 };                                       /* covey_op */

static int Take(const NcclLibrary* nccl, const covey_circuit* x, const covey_circuit_work* work,
                const covey_circuit_part* part) {
  const int type = kTypes[work->dtype];
  if (work->kind == kBroadcast)
    return nccl->broadcast(part->from, part->to, part->count, type, work->root, x->comm, x->stream);
  /* The average of one is its sum: NCCL 2.28 leaves out the end of the former. */
  const int op = x->size == 1 && work->op == kAverage ? kNcclSum : kOps[work->op];
  if (work->kind == kReducescatter)
    return nccl->reduce_scatter(part->from, part->to, part->count, type, op, x->comm, x->stream);
  return nccl->all_reduce(part->from, part->to, part->count, type, op, x->comm, x->stream);
}

static int Launch(void* self, covey_circuit* x, const covey_circuit_work* work) {
  Circuits* c = self;
  if (StateOf(c, x) != kReady || !NcclEnter(c)) return 1;
  int result = c->nccl.group_start();
  for (size_t i = 0; i < work->num_parts && result == kNcclSuccess; ++i) {
    result = Take(&c->nccl, x, work, &work->parts[i]);
    if (result == kNcclInProgress) result = kNcclSuccess;
  }
  const int ended = c->nccl.group_end();
  if (result == kNcclSuccess) result = ended;
  NcclLeave(c);
  if (result != kNcclSuccess && result != kNcclInProgress) return NcclFails(c, x, "launch", result);
  ++x->launched;
  return 0;
}

/* Whether the communicator is well: 1, 0 = it still hands work to the stream, -1. */
static int IsWell(Circuits* c, covey_circuit* x) {
  if (StateOf(c, x) != kReady) return -1;
  int result = kNcclSuccess;
  const int asked = c->nccl.async_error(x->comm, &result);
  if (asked != kNcclSuccess) result = asked;
  if (result == kNcclInProgress) return 0;
  if (result == kNcclSuccess) return 1;
  NcclFails(c, x, "go on", result);
  return -1;
}

static int IsLaunched(void* self, covey_circuit* x, uint64_t* mark) {
  Circuits* c = self;
  const int well = IsWell(c, x);
  if (well != 1) return well;
  Marked* marked = calloc(1, sizeof(*marked));
  if (marked == NULL || !NcclEnter(c)) {
    free(marked);
    return -1;
  }
  int result = c->driver->create_event(&marked->event, kCudaEventDisableTiming);
  if (result == kCudaSuccess) result = c->driver->record_event(marked->event, x->stream);
  NcclLeave(c);
  marked->number = *mark = x->launched;
  if (x->last != NULL) x->last->next = marked;
  if (x->first == NULL) x->first = marked;
  x->last = marked;
  if (result == kCudaSuccess) return 1;
  NcclDriverFails(c, x, "record an event", result);
  return -1;
}

static void DropFirst(Circuits* c, covey_circuit* x) {
  Marked* marked = x->first;
  x->first = marked->next;
  if (x->first == NULL) x->last = NULL;
  if (marked->event != NULL && NcclEnter(c)) {
    c->driver->destroy_event(marked->event);
    NcclLeave(c);
  }
  free(marked);
}

static int IsDone(void* self, covey_circuit* x, uint64_t mark) {
  Circuits* c = self;
  while (x->done < mark && x->first != NULL) {
    const int result = c->driver->query_event(x->first->event);
    if (result == kCudaNotReady) return IsWell(c, x) < 0 ? -1 : 0;
    if (result != kCudaSuccess) {
      NcclDriverFails(c, x, "compute", result);
      return -1;
    }
    /* An abort ends a kernel too: only what a well communicator has done is a result. */
    if (IsWell(c, x) < 0) return -1;
    x->done = x->first->number;
    DropFirst(c, x);
  }
  return x->done >= mark ? 1 : -1;
}

static void AbortOne(void* self, covey_circuit* x) {
  Circuits* c = self;
  pthread_mutex_lock(&c->mutex);
  x->is_aborted = 1;
  if (x->state == kReady) x->state = kFailed; /* the mechanic's from now on */
  Ring(c);
  pthread_mutex_unlock(&c->mutex);
}

static int IsOver(void* self, covey_circuit* x) { return StateOf(self, x) == kOver; }

static void GiveUp(void* self, covey_circuit* x) {
  Circuits* c = self;
  pthread_mutex_lock(&c->mutex);
  c->is_stuck |= x->state != kOver;
  pthread_mutex_unlock(&c->mutex);
}

static const char* Failure(void* self, covey_circuit* x) {
  Circuits* c = self;
  pthread_mutex_lock(&c->mutex);
  const int failed = x->failure[0] != '\0';
  pthread_mutex_unlock(&c->mutex);
  return failed ? x->failure : "";
}

/* Of the whole card: parts of one (MIG) cannot be in one communicator. 0: unknown. */
static uint64_t DeviceNumber(int device) {
  typedef struct Uuid {
    unsigned char bytes[16];
  } Uuid;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (driver == NULL) return 0;
  int (*uuid_of)(Uuid*, int) = NULL;
  void* found = dlsym(driver, "cuDeviceGetUuid");
  memcpy(&uuid_of, &found, sizeof(found));
  Uuid uuid;
  uint64_t number = 14695981039346656037u;
  const int known = uuid_of != NULL && uuid_of(&uuid, device) == kCudaSuccess;
  for (size_t i = 0; known && i < sizeof(uuid.bytes); ++i)
    number = (number ^ uuid.bytes[i]) * 1099511628211u;
  dlclose(driver);
  return known ? number | 1 : 0;
}

const covey_circuits* NcclOpenCircuits(const CudaDriver* driver, CudaContext context, int device) {
  Circuits* c = calloc(1, sizeof(*c));
  if (c == NULL) return NULL;
  c->driver = driver;
  c->context = context;
  pthread_mutex_init(&c->mutex, NULL);
  c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  c->shown = (covey_circuits){.self = c,
                              .device = DeviceNumber(device),
                              .offers = Offers,
                              .trouble = Trouble,
                              .make_id = TakeId,
                              .open = OpenOne,
                              .is_ready = IsReady,
                              .after = After,
                              .launch = Launch,
                              .is_launched = IsLaunched,
                              .is_done = IsDone,
                              .abort = AbortOne,
                              .is_over = IsOver,
                              .give_up = GiveUp,
                              .failure = Failure};
  return &c->shown;
}

/* 0: it is stuck. */
static int EndMechanic(Circuits* c) {
  if (!c->has_mechanic) return 1;
  pthread_mutex_lock(&c->mutex);
  c->closes = 1;
  Ring(c);
  for (int look = 0; !c->has_ended && look < (c->is_stuck ? kLooksIfStuck : kLooks); ++look) {
    pthread_mutex_unlock(&c->mutex);
    poll(NULL, 0, kLookMs);
    pthread_mutex_lock(&c->mutex);
  }
  const int has_ended = c->has_ended;
  pthread_mutex_unlock(&c->mutex);
  if (has_ended) {
    pthread_join(c->mechanic, NULL);
  } else {
    pthread_detach(c->mechanic);
  }
  return has_ended;
}

int NcclCloseCircuits(const covey_circuits* circuits) {
  if (circuits == NULL) return 1;
  Circuits* c = circuits->self;
  if (!EndMechanic(c)) return 0;
  while (c->circuits != NULL) {
    covey_circuit* x = c->circuits;
    c->circuits = x->next;
    while (x->first != NULL) DropFirst(c, x);
    if (x->stream != NULL && NcclEnter(c)) {
      c->driver->destroy_stream(x->stream);
      NcclLeave(c);
    }
    free(x);
  }
  if (c->bell >= 0) close(c->bell);
  pthread_mutex_destroy(&c->mutex);
  free(c);
  return 1;
}
