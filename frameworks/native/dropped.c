/* Operations whose Handle was dropped before anything asked for their end.
 *
 * Rules (core/PROTOCOL.md):
 *  native-H1 Such an operation in flight is an orphan: it keeps its tensors until it has ended.
 *  native-H7 A second call of its name directly after it is refused, whether it has ended or not.
 * All is guarded by the interpreter lock. */
#include <stdlib.h>
#include <string.h>

#include "frameworks/native/native.h"

enum { kMostName = 512 };

typedef struct Orphan {
  covey_handle handle;
  PyObject* keep;
  struct Orphan* next;
} Orphan;

static Orphan* orphans;

/* The operation that was submitted last, if it has a name and its end is not seen. */
static struct {
  covey_handle handle; /* 0: there is none */
  int dropped;
  uint64_t group;
  char name[kMostName];
} last;

void AddOrphan(covey_handle handle, PyObject* keep) {
  Orphan* orphan = malloc(sizeof(*orphan));
  if (orphan == NULL) return; /* Leaks `keep`: better than writing into freed memory. */
  *orphan = (Orphan){.handle = handle, .keep = keep, .next = orphans};
  orphans = orphan;
}

void SweepOrphans(int all) {
  if (all) last.handle = 0;
  Orphan** link = &orphans;
  Orphan* ended = NULL;
  while (*link != NULL) {
    Orphan* orphan = *link;
    if (!all && covey_poll(NULL, orphan->handle) == 0) {
      link = &orphan->next;
      continue;
    }
    *link = orphan->next;
    orphan->next = ended;
    ended = orphan;
  }
  /* Unlinked first: letting go of a tensor may run Python code that comes back here. */
  while (ended != NULL) {
    Orphan* orphan = ended;
    ended = orphan->next;
    if (!all) covey_release(NULL, orphan->handle); /* native-H1: it has ended, nothing borrows */
    Py_XDECREF(orphan->keep);
    free(orphan);
  }
}

void NoteSubmitted(const covey_request* request, covey_handle handle) {
  last.handle = 0;
  if (request->waits || request->name == NULL) return;
  const size_t length = strlen(request->name);
  if (length == 0 || length >= kMostName) return;
  memcpy(last.name, request->name, length + 1);
  last.group = request->group;
  last.handle = handle;
  last.dropped = 0;
}

void NoteSeen(covey_handle handle) {
  /* native-H7: its end, or its state, is known to the caller. */
  if (handle == last.handle) last.handle = 0;
}

void NoteDropped(covey_handle handle) {
  if (handle == last.handle) last.dropped = 1;
}

int RefuseRepeated(const covey_request* request) {
  const int repeats = last.handle != 0 && last.dropped && request->name != NULL &&
                      request->group == last.group && strcmp(request->name, last.name) == 0;
  last.handle = 0;
  /* native-H7: else it would depend on time whether the call is an error. */
  if (!repeats) return 0;
  covey_error error;
  ClearError(&error);
  error.code = COVEY_INVALID_ARGUMENT;
  PyOS_snprintf(error.message, sizeof(error.message),
                "'%s' is the name of the call before, whose handle was dropped, so that it may be "
                "in flight: wait for it first, or use another name",
                request->name);
  RaiseError(&error);
  return -1;
}
