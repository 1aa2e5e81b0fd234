/* The thread that makes and ends communicators of NCCL, see nccl_state.h. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ops/devices/cuda/nccl_state.h"

enum { kCudaNoContext = 201 };
/* How often the mechanic looks at a communicator that is being made, and how often at most at one
 * that is taken down in order. */
enum { kLookMs = 1, kFarewellLooks = 5000 };

int NcclEnter(Circuits* c) { return c->driver->push_context(c->context) == kCudaSuccess; }

void NcclLeave(Circuits* c) {
  CudaContext popped;
  c->driver->pop_context(&popped);
}

/* Mutex held. */
static void Fails(covey_circuit* x, const char* what, const char* text) {
  if (x->failure[0] == '\0')
    snprintf(x->failure, sizeof(x->failure), "NCCL cannot %s: %s", what, text);
  if (x->state < kFailed) x->state = kFailed;
}

int NcclFails(Circuits* c, covey_circuit* x, const char* what, int result) {
  const char* more = x->comm == NULL ? NULL : c->nccl.last_error(x->comm);
  char text[192];
  snprintf(text, sizeof(text), "%s%s%s", c->nccl.error_text(result),
           more == NULL || more[0] == '\0' ? "" : ": ", more == NULL ? "" : more);
  pthread_mutex_lock(&c->mutex);
  Fails(x, what, text);
  pthread_mutex_unlock(&c->mutex);
  return 1;
}

int NcclDriverFails(Circuits* c, covey_circuit* x, const char* what, int result) {
  const char* text = NULL;
  if (c->driver->error_text(result, &text) != kCudaSuccess || text == NULL) text = "unknown";
  pthread_mutex_lock(&c->mutex);
  Fails(x, what, text);
  pthread_mutex_unlock(&c->mutex);
  return 1;
}

static void FindLibrary(Circuits* c) {
  char error[sizeof(c->trouble)] = "";
  const int failed = NcclOpen(&c->nccl, error, sizeof(error));
  pthread_mutex_lock(&c->mutex);
  memcpy(c->trouble, error, sizeof(error));
  c->library = failed ? kAbsent : kThere;
  pthread_mutex_unlock(&c->mutex);
}

static void MakeId(Circuits* c) {
  NcclId id;
  const int result = NcclEnter(c) ? c->nccl.unique_id(&id) : -1;
  if (result != -1) NcclLeave(c);
  pthread_mutex_lock(&c->mutex);
  if (result == kNcclSuccess) {
    c->made_id = id;
  } else {
    snprintf(c->trouble, sizeof(c->trouble), "NCCL can make no id: %s",
             result == -1 ? "the device's context is gone" : c->nccl.error_text(result));
  }
  c->id = result == kNcclSuccess ? kThere : kAbsent;
  pthread_mutex_unlock(&c->mutex);
}

static void Begin(Circuits* c, covey_circuit* x) {
  NcclConfig config = {.size = sizeof(config),
                       .magic = kNcclConfigMagic,
                       .version = kNcclConfigVersion,
                       .blocking = 0};
  int made = kCudaSuccess;
  if (!NcclEnter(c)) {
    NcclDriverFails(c, x, "be used", kCudaNoContext);
    return;
  }
  made = c->driver->create_stream(&x->stream, kCudaStreamNonBlocking);
  int result = kNcclSuccess;
  if (made == kCudaSuccess) result = c->nccl.init(&x->comm, x->size, x->id, x->me, &config);
  NcclLeave(c);
  if (made != kCudaSuccess) {
    NcclDriverFails(c, x, "have a stream", made);
  } else if (result != kNcclSuccess && result != kNcclInProgress) {
    NcclFails(c, x, "make a communicator", result);
  } else {
    pthread_mutex_lock(&c->mutex);
    if (x->state == kNew) x->state = kMaking;
    pthread_mutex_unlock(&c->mutex);
  }
}

static void Watch(Circuits* c, covey_circuit* x) {
  int result = kNcclSuccess;
  const int asked = c->nccl.async_error(x->comm, &result);
  if (asked != kNcclSuccess) result = asked;
  if (result == kNcclInProgress) return;
  if (result != kNcclSuccess) {
    NcclFails(c, x, "make a communicator", result);
    return;
  }
  pthread_mutex_lock(&c->mutex);
  if (x->state == kMaking) x->state = kReady;
  pthread_mutex_unlock(&c->mutex);
}

/* Until the driver rings, which may have been before; `looks`: no longer than a look takes. */
static void Wait(Circuits* c, int looks) {
  struct pollfd bell = {.fd = c->bell, .events = POLLIN};
  uint64_t rings;
  const int rung = poll(&bell, 1, looks || c->bell < 0 ? kLookMs : -1);
  if (rung > 0 && read(c->bell, &rings, sizeof(rings)) < 0) return; /* nothing was lost */
}

/* In order: data that peers still read of this device must have gone out. */
static int TakeDown(Circuits* c, covey_circuit* x) {
  int result = c->nccl.finalize(x->comm);
  for (int look = 0; result == kNcclInProgress || result == kNcclSuccess; ++look) {
    if (c->nccl.async_error(x->comm, &result) != kNcclSuccess || look == kFarewellLooks) return 0;
    if (result == kNcclSuccess) return c->nccl.destroy(x->comm) == kNcclSuccess;
    poll(NULL, 0, kLookMs);
  }
  return 0;
}

/* `in_order`: nothing of it is under way. */
static void End(Circuits* c, covey_circuit* x, int in_order) {
  if (x->comm != NULL && NcclEnter(c)) {
    if (!in_order || !TakeDown(c, x)) c->nccl.abort(x->comm);
    NcclLeave(c);
  }
  pthread_mutex_lock(&c->mutex);
  x->comm = NULL;
  x->state = kOver;
  pthread_mutex_unlock(&c->mutex);
}

/* One thing that there is to do. Mutex held, and released meanwhile. 0: there is nothing; 1: it has
 * done it; -1: it is to look again soon. */
static int DoOne(Circuits* c) {
  void (*job)(Circuits*) = c->library == kWanted ? FindLibrary : c->id == kWanted ? MakeId : NULL;
  if (job != NULL) {
    pthread_mutex_unlock(&c->mutex);
    job(c);
    pthread_mutex_lock(&c->mutex);
    return 1;
  }
  int looks = 0;
  for (covey_circuit* x = c->circuits; x != NULL; x = x->next) {
    const State state = x->state;
    const int ends = state != kOver && (x->is_aborted || c->closes);
    /* At the close no thread drives any more. */
    const int in_order = state == kReady && !x->is_aborted && x->done == x->launched;
    if (ends) x->state = kEnding;
    if (!ends && state != kNew && state != kMaking) continue;
    pthread_mutex_unlock(&c->mutex);
    if (ends) {
      End(c, x, in_order);
    } else if (state == kNew) {
      Begin(c, x);
    } else {
      Watch(c, x);
    }
    pthread_mutex_lock(&c->mutex);
    looks |= x->state == kMaking;
  }
  return looks ? -1 : 0;
}

void* NcclMechanic(void* self) {
  Circuits* c = self;
  prctl(PR_SET_NAME, "covey-nccl");
  pthread_mutex_lock(&c->mutex);
  for (;;) {
    const int did = DoOne(c);
    if (did == 1) continue;
    if (did == 0 && c->closes) break;
    pthread_mutex_unlock(&c->mutex);
    Wait(c, did != 0);
    pthread_mutex_lock(&c->mutex);
  }
  c->has_ended = 1;
  pthread_mutex_unlock(&c->mutex);
  return NULL;
}
