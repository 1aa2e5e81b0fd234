/* Messages over MPI's point-to-point calls: what `covey build mpi` compiles against the mpicc in
 * PATH.
 *
 * Uses a duplicate of MPI_COMM_WORLD, so it meets no messages of other libraries. If another
 * library (mpi4py) has initialised MPI, that is used as it is; else MPI is initialised with
 * MPI_THREAD_MULTIPLE, as the program may use MPI too while Covey's thread does, and finalised when
 * the process exits. With less than MPI_THREAD_SERIALIZED granted only the opening thread may call.
 * MPI has no descriptor to sleep on: the user of this link looks again and again.
 *
 * MPI_Isend keeps the message until it is complete, so every message is copied once here; at most
 * kMaxOpen are under way.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport/covey_link.h"

enum { kMaxOpen = 256, kTag = 0 };

typedef struct Mpi {
  MPI_Comm comm;
  int open; /* sends under way: the first `open` entries below */
  MPI_Request requests[kMaxOpen];
  void* copies[kMaxOpen];
  void* received;
  size_t capacity;
} Mpi;

static void Finalize(void) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

/* Forgets the sends that are complete. */
static int Reap(Mpi* mpi) {
  int done[kMaxOpen];
  int count = 0;
  if (mpi->open == 0) return 0;
  if (MPI_Testsome(mpi->open, mpi->requests, &count, done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
    return -1;
  for (int i = 0; i < count; ++i) {
    free(mpi->copies[done[i]]);
    mpi->copies[done[i]] = NULL;
  }
  int kept = 0;
  for (int i = 0; i < mpi->open; ++i) {
    if (mpi->copies[i] == NULL) continue;
    mpi->requests[kept] = mpi->requests[i];
    mpi->copies[kept++] = mpi->copies[i];
  }
  mpi->open = kept;
  return 0;
}

static int Send(void* self, int32_t to, const void* message, size_t length) {
  Mpi* mpi = self;
  if (length > (size_t)1 << 30) return -1;
  if (Reap(mpi) != 0) return -1;
  if (mpi->open == kMaxOpen) return 0;
  void* copy = malloc(length);
  if (copy == NULL) return 0;
  memcpy(copy, message, length);
  if (MPI_Isend(copy, (int)length, MPI_BYTE, to, kTag, mpi->comm, &mpi->requests[mpi->open]) !=
      MPI_SUCCESS) {
    free(copy);
    return -1;
  }
  mpi->copies[mpi->open++] = copy;
  return 1;
}

static int Receive(void* self, int32_t* from, const void** message, size_t* length) {
  Mpi* mpi = self;
  MPI_Message arrived;
  MPI_Status status;
  int any = 0;
  int count = 0;
  if (MPI_Improbe(MPI_ANY_SOURCE, kTag, mpi->comm, &any, &arrived, &status) != MPI_SUCCESS)
    return -1;
  if (!any) return Reap(mpi) != 0 ? -1 : 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  if ((size_t)count > mpi->capacity) {
    void* larger = realloc(mpi->received, (size_t)count);
    if (larger == NULL) return -1;
    mpi->received = larger;
    mpi->capacity = (size_t)count;
  }
  if (MPI_Mrecv(mpi->received, count, MPI_BYTE, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    return -1;
  *from = status.MPI_SOURCE;
  *message = mpi->received;
  *length = (size_t)count;
  return 1;
}

static int Flushed(void* self) {
  Mpi* mpi = self;
  return Reap(mpi) != 0 || mpi->open == 0;
}

static void Close(void* self) {
  Mpi* mpi = self;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) {
    /* Messages still under way go to ranks that have left. */
    for (int i = 0; i < mpi->open; ++i) MPI_Request_free(&mpi->requests[i]);
    if (mpi->open == 0) MPI_Comm_free(&mpi->comm);
  }
  free(mpi->received);
  if (mpi->open == 0) free(mpi); /* else MPI may still read the copies */
}

static int Fail(char* error, size_t capacity, const char* what) {
  snprintf(error, capacity, "%s", what);
  return 1;
}

__attribute__((visibility("default"))) int covey_open_link(uint32_t abi, covey_link* link,
                                                           char* error, size_t capacity) {
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
  if (MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm) != MPI_SUCCESS) {
    free(mpi);
    return Fail(error, capacity, "MPI_Comm_dup of MPI_COMM_WORLD failed");
  }
  MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
  memset(link, 0, sizeof(*link));
  MPI_Comm host;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(mpi->comm, &rank);
  MPI_Comm_size(mpi->comm, &size);
  link->rank = rank;
  link->size = size;
  MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &rank);
  MPI_Comm_size(host, &size);
  MPI_Comm_free(&host);
  link->local_rank = rank;
  link->local_size = size;
  link->self = mpi;
  link->any_thread = granted >= MPI_THREAD_SERIALIZED;
  link->send = Send;
  link->receive = Receive;
  link->flushed = Flushed;
  link->close = Close;
  return 0;
}
