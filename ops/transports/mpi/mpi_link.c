/* Messages and puts over MPI's point-to-point calls: what `covey build mpi` compiles against the
 * mpicc in PATH.
 *
 * Uses duplicates of MPI_COMM_WORLD, so it meets no messages of other libraries. If another
 * library (mpi4py) has initialised MPI, that is used as it is; else MPI is initialised with
 * MPI_THREAD_MULTIPLE, as the program may use MPI too while Covey's thread does, and finalised when
 * the process exits. With less than MPI_THREAD_SERIALIZED granted only the opening thread may call.
 * MPI has no descriptor to sleep on: the user of this link looks again and again.
 *
 * MPI_Isend keeps the message until it is complete, so every message is copied once here. A put is
 * sent from where it lies: its place goes ahead as a message, its bytes follow on a communicator of
 * their own, where the receiver has by then posted the receive. Those of a short put follow in
 * pieces, each short enough for MPI to send it at once: longer messages are sent once the receiver
 * has answered, a round trip later. At most kMaxOpen are under way.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport/covey_link.h"

enum { kMaxOpen = 256, kMessage = 0, kPlace = 1 };
/* MPI sends a message of kEagerBytes at once. Over TCP the limit of Open MPI and MPICH is
 * 64 KiB. */
enum { kEagerBytes = 36 << 10, kMostPieces = 8 };
#define MAX_LENGTH ((size_t)1 << 30) /* of what one call of MPI takes: a count is an int */

/* Where the bytes of a put go. */
typedef struct Place {
  uint64_t offset;
  uint64_t length;
} Place;

/* A put whose bytes are being received, or a message that came after one. */
typedef struct Arrival {
  struct Arrival* next;
  MPI_Request put; /* MPI_REQUEST_NULL: a message, `length` bytes behind this struct */
  size_t length;
} Arrival;

typedef struct Peer {
  char* memory; /* where its puts land */
  size_t length;
  Arrival* first;
  Arrival** last;
} Peer;

typedef struct Mpi {
  MPI_Comm messages;
  MPI_Comm bytes; /* of puts */
  int size;
  int is_closed;
  int open; /* sends under way: the first `open` entries below */
  MPI_Request requests[kMaxOpen];
  void* copies[kMaxOpen]; /* NULL: a put */
  int waiting;            /* arrivals, of all peers */
  Peer* peers;
  int32_t* hosts; /* by rank, the lowest of its host */
  void* received;
  size_t capacity;
} Mpi;

static void Finalize(void) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

/* While the link is open Covey's thread takes them. */
static void DiscardArrived(Mpi* mpi) {
  while (mpi->is_closed) {
    MPI_Message arrived;
    MPI_Status status;
    int any = 0;
    int count = 0;
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->messages, &any, &arrived, &status);
    if (!any) return;
    MPI_Get_count(&status, MPI_BYTE, &count);
    void* unread = malloc((size_t)count + 1);
    if (unread == NULL) return;
    MPI_Mrecv(unread, count, MPI_BYTE, &arrived, MPI_STATUS_IGNORE);
    free(unread);
  }
}

/* MPI's key for the link that this process has opened last. */
static int last_link = MPI_KEYVAL_INVALID;

/* MPI calls it on all ranks when they open another link, and first of all in MPI_Finalize. When a
 * rank closes its link its peers' last messages are still on their way, and MPI libraries warn of
 * messages that nothing has received. */
static int Forget(MPI_Comm self, int key, void* link, void* unused) {
  Mpi* mpi = link;
  MPI_Request on_all;
  int done = MPI_Ibarrier(mpi->messages, &on_all) != MPI_SUCCESS;
  (void)self, (void)key, (void)unused;
  while (!done) {
    DiscardArrived(mpi);
    if (MPI_Test(&on_all, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
  }
  DiscardArrived(mpi);
  if (mpi->is_closed && mpi->open == 0) { /* else MPI may still read the copies */
    MPI_Comm_free(&mpi->messages);
    MPI_Comm_free(&mpi->bytes);
    free(mpi);
  }
  return MPI_SUCCESS;
}

/* Forgets the sends that are complete. */
static int Reap(Mpi* mpi) {
  int done[kMaxOpen];
  int count = 0;
  if (mpi->open == 0) return 0;
  if (MPI_Testsome(mpi->open, mpi->requests, &count, done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
    return -1;
  if (count <= 0) return 0;
  int kept = 0;
  for (int i = 0; i < mpi->open; ++i) {
    if (mpi->requests[i] == MPI_REQUEST_NULL) {
      free(mpi->copies[i]);
      continue;
    }
    mpi->requests[kept] = mpi->requests[i];
    mpi->copies[kept++] = mpi->copies[i];
  }
  mpi->open = kept;
  return 0;
}

static int SendCopy(Mpi* mpi, int32_t to, int tag, const void* message, size_t length) {
  void* copy = malloc(length);
  if (copy == NULL) return 0;
  memcpy(copy, message, length);
  if (MPI_Isend(copy, (int)length, MPI_BYTE, to, tag, mpi->messages, &mpi->requests[mpi->open]) !=
      MPI_SUCCESS) {
    free(copy);
    return -1;
  }
  mpi->copies[mpi->open++] = copy;
  return 1;
}

static int Send(void* self, int32_t to, const void* message, size_t length) {
  Mpi* mpi = self;
  if (length > MAX_LENGTH || Reap(mpi) != 0) return -1;
  if (mpi->open == kMaxOpen) return 0;
  return SendCopy(mpi, to, kMessage, message, length);
}

static void Land(void* self, int32_t from, void* memory, size_t length) {
  Mpi* mpi = self;
  mpi->peers[from].memory = memory;
  mpi->peers[from].length = length;
}

/* The length of a put's next message; `left` of the put's `length` bytes are still to be sent. */
static size_t NextBytes(size_t length, size_t left) {
  const int in_pieces = length <= (size_t)kEagerBytes * kMostPieces;
  return in_pieces && left > kEagerBytes ? kEagerBytes : left;
}

static int Put(void* self, int32_t to, uint64_t offset, const void* data, size_t length) {
  Mpi* mpi = self;
  if (length > MAX_LENGTH || Reap(mpi) != 0) return -1;
  if (mpi->open + 1 + kMostPieces > kMaxOpen) return 0;
  const Place place = {offset, length};
  const int told = SendCopy(mpi, to, kPlace, &place, sizeof(place));
  if (told <= 0) return told;
  const char* from = data;
  for (size_t left = length; left > 0;) {
    const size_t bytes = NextBytes(length, left);
    if (MPI_Isend(from, (int)bytes, MPI_BYTE, to, kMessage, mpi->bytes,
                  &mpi->requests[mpi->open]) != MPI_SUCCESS)
      return -1;
    mpi->copies[mpi->open++] = NULL;
    from += bytes;
    left -= bytes;
  }
  return 1;
}

static Arrival* Enqueue(Mpi* mpi, int32_t from, size_t length) {
  Peer* peer = &mpi->peers[from];
  Arrival* arrival = malloc(sizeof(Arrival) + length);
  if (arrival == NULL) return NULL;
  *arrival = (Arrival){.next = NULL, .put = MPI_REQUEST_NULL, .length = length};
  *peer->last = arrival;
  peer->last = &arrival->next;
  ++mpi->waiting;
  return arrival;
}

static void Dequeue(Mpi* mpi, Peer* peer) {
  Arrival* arrival = peer->first;
  peer->first = arrival->next;
  if (peer->first == NULL) peer->last = &peer->first;
  free(arrival);
  --mpi->waiting;
}

static int Reserve(Mpi* mpi, size_t length) {
  if (length <= mpi->capacity) return 0;
  void* larger = realloc(mpi->received, length);
  if (larger == NULL) return -1;
  mpi->received = larger;
  mpi->capacity = length;
  return 0;
}

/* Takes puts that are complete; 1 = then a message is first, 0 = it is not, -1 = broken. */
static int ReachMessage(Mpi* mpi, Peer* peer) {
  while (peer->first != NULL && peer->first->put != MPI_REQUEST_NULL) {
    int complete = 0;
    if (MPI_Test(&peer->first->put, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) return -1;
    if (!complete) return 0;
    Dequeue(mpi, peer);
  }
  return peer->first != NULL;
}

/* The first message behind puts that are complete. */
static int ReceiveWaiting(Mpi* mpi, int32_t* from, const void** message, size_t* length) {
  for (int r = 0; mpi->waiting > 0 && r < mpi->size; ++r) {
    Peer* peer = &mpi->peers[r];
    const int reached = ReachMessage(mpi, peer);
    if (reached == 0) continue;
    if (reached < 0 || Reserve(mpi, peer->first->length) != 0) return -1;
    memcpy(mpi->received, peer->first + 1, peer->first->length);
    *from = r;
    *message = mpi->received;
    *length = peer->first->length;
    Dequeue(mpi, peer);
    return 1;
  }
  return 0;
}

/* Posts the receives of a put. */
static int Expect(Mpi* mpi, int32_t from, const Place* place) {
  const Peer* peer = &mpi->peers[from];
  if (place->length > MAX_LENGTH || place->offset > peer->length ||
      place->length > peer->length - place->offset)
    return -1;
  char* to = peer->memory + place->offset;
  for (size_t left = place->length; left > 0;) {
    const size_t bytes = NextBytes(place->length, left);
    Arrival* arrival = Enqueue(mpi, from, 0);
    if (arrival == NULL) return -1;
    if (MPI_Irecv(to, (int)bytes, MPI_BYTE, from, kMessage, mpi->bytes, &arrival->put) !=
        MPI_SUCCESS)
      return -1;
    to += bytes;
    left -= bytes;
  }
  return 0;
}

static int Receive(void* self, int32_t* from, const void** message, size_t* length) {
  Mpi* mpi = self;
  for (;;) {
    MPI_Message arrived;
    MPI_Status status;
    int any = 0;
    int count = 0;
    const int waited = ReceiveWaiting(mpi, from, message, length);
    if (waited != 0) return waited;
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->messages, &any, &arrived, &status) !=
        MPI_SUCCESS)
      return -1;
    if (!any) return Reap(mpi) != 0 ? -1 : 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    Place place;
    void* to = &place;
    *from = status.MPI_SOURCE;
    const int behind = mpi->peers[*from].first != NULL && status.MPI_TAG == kMessage;
    if (behind) {
      Arrival* arrival = Enqueue(mpi, *from, (size_t)count);
      if (arrival == NULL) return -1;
      to = arrival + 1;
    } else if (status.MPI_TAG == kMessage) {
      if (Reserve(mpi, (size_t)count) != 0) return -1;
      to = mpi->received;
    } else if (count != (int)sizeof(place)) {
      return -1;
    }
    if (MPI_Mrecv(to, count, MPI_BYTE, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS) return -1;
    if (status.MPI_TAG == kPlace && Expect(mpi, *from, &place) != 0) return -1;
    if (behind || status.MPI_TAG == kPlace) continue;
    *message = mpi->received;
    *length = (size_t)count;
    return 1;
  }
}

static void Drop(void* self, int32_t of) {
  Mpi* mpi = self;
  Peer* peer = &mpi->peers[of];
  while (peer->first != NULL) {
    if (peer->first->put != MPI_REQUEST_NULL) {
      MPI_Cancel(&peer->first->put);
      MPI_Wait(&peer->first->put, MPI_STATUS_IGNORE);
    }
    Dequeue(mpi, peer);
  }
}

static int Flushed(void* self) {
  Mpi* mpi = self;
  return Reap(mpi) != 0 || mpi->open == 0;
}

static void Close(void* self) {
  Mpi* mpi = self;
  int finalized = 0;
  MPI_Finalized(&finalized);
  mpi->is_closed = 1;
  if (!finalized) {
    for (int r = 0; r < mpi->size; ++r) Drop(mpi, r);
    /* Messages still under way go to ranks that have left. */
    for (int i = 0; i < mpi->open; ++i) MPI_Request_free(&mpi->requests[i]);
  }
  free(mpi->received);
  free(mpi->peers);
  free(mpi->hosts);
  if (finalized && mpi->open == 0) free(mpi); /* else Forget does it */
}

static int Fail(char* error, size_t capacity, const char* what) {
  snprintf(error, capacity, "%s", what);
  return 1;
}

/* The communicators, and who is who in them. */
static int Enter(Mpi* mpi, covey_link* link) {
  MPI_Comm host;
  if (MPI_Comm_dup(MPI_COMM_WORLD, &mpi->messages) != MPI_SUCCESS ||
      MPI_Comm_dup(MPI_COMM_WORLD, &mpi->bytes) != MPI_SUCCESS)
    return -1;
  MPI_Comm_set_errhandler(mpi->messages, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(mpi->bytes, MPI_ERRORS_RETURN);
  MPI_Comm_rank(mpi->messages, &link->rank);
  MPI_Comm_size(mpi->messages, &link->size);
  int lowest = link->rank;
  MPI_Comm_split_type(mpi->messages, MPI_COMM_TYPE_SHARED, link->rank, MPI_INFO_NULL, &host);
  MPI_Bcast(&lowest, 1, MPI_INT, 0, host); /* of its rank 0, which has the lowest */
  MPI_Comm_free(&host);
  mpi->size = link->size;
  mpi->peers = calloc((size_t)link->size, sizeof(Peer));
  mpi->hosts = calloc((size_t)link->size, sizeof(int32_t));
  if (mpi->peers == NULL || mpi->hosts == NULL) return -1;
  MPI_Allgather(&lowest, 1, MPI_INT32_T, mpi->hosts, 1, MPI_INT32_T, mpi->messages);
  link->hosts = mpi->hosts;
  for (int r = 0; r < mpi->size; ++r) mpi->peers[r].last = &mpi->peers[r].first;
  if (last_link == MPI_KEYVAL_INVALID)
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, Forget, &last_link, NULL);
  return MPI_Comm_set_attr(MPI_COMM_SELF, last_link, mpi) == MPI_SUCCESS ? 0 : -1;
}

__attribute__((visibility("default"))) int covey_open_link(uint32_t abi,
                                                           const covey_link_options* options,
                                                           covey_link* link, char* error,
                                                           size_t capacity) {
  (void)options; /* MPI knows the place of this rank */
  int initialized = 0;
  int finalized = 0;
  int granted = MPI_THREAD_SINGLE;
  if (abi != COVEY_LINK_ABI)
    return Fail(error, capacity, "it was built for another version of Covey: run covey build mpi");
  MPI_Finalized(&finalized);
  if (finalized) return Fail(error, capacity, "MPI has been finalized in this process");
  MPI_Initialized(&initialized);
  if (!initialized) {
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &granted) != MPI_SUCCESS)
      return Fail(error, capacity, "MPI_Init_thread failed");
    atexit(Finalize);
  }
  MPI_Query_thread(&granted);
  Mpi* mpi = calloc(1, sizeof(Mpi));
  if (mpi == NULL) return Fail(error, capacity, "no memory");
  memset(link, 0, sizeof(*link));
  if (Enter(mpi, link) != 0) {
    free(mpi);
    return Fail(error, capacity, "MPI_Comm_dup of MPI_COMM_WORLD failed");
  }
  link->self = mpi;
  link->any_thread = granted >= MPI_THREAD_SERIALIZED;
  link->descriptor = -1;
  link->send = Send;
  link->receive = Receive;
  link->flushed = Flushed;
  link->close = Close;
  link->land = Land;
  link->put = Put;
  link->drop = Drop;
  link->eager_bytes = kEagerBytes;
  return 0;
}
