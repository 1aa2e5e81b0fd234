/* The type covey.Handle: one operation in flight, and the tensors it borrows. It is written in C
 * because one is made for each operation: an object of a Python class costs more than all the rest
 * of submitting, and the garbage collector looks at each.
 *
 * Rules (core/PROTOCOL.md):
 *  native-H1 Memory handed to the core stays alive until the operation has ended: a Handle holds
 *     `keep`; a Handle dropped before the end gives both to the orphans (dropped.c). Dealloc never
 *     waits.
 *  native-H2 A handle number is used only with the runtime that made it (`life` counts runtimes),
 *     until it is released, by dealloc or by the end that wait() saw.
 * wait() lets other Python threads run and looks for signals at least every 50 ms. */
#include <stddef.h>
#include <stdlib.h>

#include "frameworks/native/native.h"

#include <structmember.h>

enum { kSliceNs = 50 * 1000 * 1000 };

typedef struct {
  PyObject_HEAD
  covey_handle handle;
  uint64_t life;
  int ended;    /* known to have */
  int plain;    /* nothing but its end is asked of the operation: the end releases `handle` */
  int released; /* it has been */
  int waiting;  /* threads that use it without the interpreter lock */
  PyObject* keep;
  PyObject* result; /* what wait() returns; NULL: None */
  PyObject* finish; /* when given, makes that of the Handle once the operation has ended */
  PyObject* rows;   /* see the documentation */
  PyThread_type_lock finishing; /* held while `finish` runs; NULL until it is first to */
  PyObject* weak;               /* weak references to this */
} Handle;

/* Guarded by the interpreter lock. */
static PyTypeObject* handle_type;
static uint64_t current_life;

void EndLife(void) { ++current_life; }

PyObject* NewHandle(covey_handle handle, PyObject* keep) {
  Py_INCREF(keep);
  Handle* self = PyObject_New(Handle, handle_type);
  if (self == NULL) {
    AddOrphan(handle, keep);
    return NULL;
  }
  self->handle = handle;
  self->life = current_life;
  self->keep = keep;
  self->ended = self->plain = self->released = self->waiting = 0;
  self->result = self->finish = self->rows = self->weak = NULL;
  self->finishing = NULL;
  return (PyObject*)self;
}

void SetResult(PyObject* object, PyObject* result) {
  Handle* self = (Handle*)object;
  Py_INCREF(result);
  self->result = result;
  self->plain = 1;
}

static void HandleDealloc(PyObject* object) {
  Handle* self = (Handle*)object;
  PyTypeObject* type = Py_TYPE(object);
  if (self->weak != NULL) PyObject_ClearWeakRefs(object);
  Py_XDECREF(self->result);
  Py_XDECREF(self->finish);
  Py_XDECREF(self->rows);
  if (self->finishing != NULL) PyThread_free_lock(self->finishing);
  int state = self->life == current_life && !self->released ? 1 : -1;
  if (state == 1) NoteDropped(self->handle);
  if (state == 1 && !self->ended) state = covey_poll(NULL, self->handle);
  if (state == 0) { /* native-H1: in flight: the core still reads and writes the tensors */
    AddOrphan(self->handle, self->keep);
  } else {
    if (state == 1) covey_release(NULL, self->handle);
    Py_XDECREF(self->keep); /* native-H1: no longer than that */
  }
  PyObject_Free(object);
  Py_DECREF(type);
}

/* native-H2: a later runtime may have given the same number to another operation. */
static int RefuseOldHandle(const Handle* self) {
  if (self->life == current_life) return 0;
  covey_error error;
  ClearError(&error);
  error.code = COVEY_ABORTED;
  PyOS_snprintf(error.message, sizeof(error.message),
                "this operation belongs to a runtime that was shut down");
  RaiseError(&error);
  return -1;
}

/* Waits in slices; returns the operation's code, COVEY_TIMEOUT after `limit_ns` (negative: none),
 * or -1 with an exception set when a signal handler raised. */
static int WaitInSlices(covey_handle handle, int64_t limit_ns, covey_error* error) {
  const int64_t deadline_ns = limit_ns < 0 ? INT64_MAX : covey_now_ns() + limit_ns;
  for (;;) {
    int64_t slice_ns = kSliceNs;
    if (limit_ns >= 0) {
      const int64_t left_ns = deadline_ns - covey_now_ns();
      if (left_ns < slice_ns) slice_ns = left_ns > 0 ? left_ns : 0;
    }
    covey_code code;
    Py_BEGIN_ALLOW_THREADS
    code = covey_wait(NULL, handle, slice_ns, error);
    Py_END_ALLOW_THREADS
    error->code = code;
    TellShutdown(error); /* native-H2: the handle was of this life, which has ended */
    code = error->code;
    if (code != COVEY_TIMEOUT) return code;
    if (LookAround() != 0) return -1;
    if (limit_ns >= 0 && covey_now_ns() >= deadline_ns) return COVEY_TIMEOUT;
  }
}

static int ParseTimeout(PyObject* args, PyObject* kwargs, int64_t* limit_ns) {
  static char name[] = "timeout";
  char* names[] = {name, NULL};
  PyObject* timeout = Py_None;
  *limit_ns = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait", names, &timeout)) return -1;
  if (timeout == Py_None) return 0;
  const double seconds = PyFloat_AsDouble(timeout);
  if (seconds == -1.0 && PyErr_Occurred()) return -1;
  if (!(seconds >= 0)) {
    RaiseInvalidArgument("timeout must be a number of seconds >= 0, or None");
    return -1;
  }
  *limit_ns = seconds > 9e9 ? INT64_MAX / 2 : (int64_t)(seconds * 1e9);
  return 0;
}

int WaitForEnd(PyObject* object, int64_t limit_ns) {
  Handle* self = (Handle*)object;
  if (RefuseOldHandle(self) != 0) return -1;
  if (self->released) return 0;
  NoteSeen(self->handle);
  if (self->plain && self->waiting == 0 && covey_release_if_done(NULL, self->handle) == 1) {
    self->ended = self->released = 1;
    return 0;
  }
  covey_error error;
  ClearError(&error);
  ++self->waiting;
  const int ended = !self->plain && covey_poll(NULL, self->handle) == 1;
  const int code = ended ? (int)covey_wait(NULL, self->handle, 0, &error)
                         : WaitInSlices(self->handle, limit_ns, &error);
  --self->waiting;
  self->ended = code == COVEY_OK;
  if (code <= 0) return code; /* COVEY_OK, or an exception is set */
  error.code = (covey_code)code;
  RaiseError(&error);
  return -1;
}

static int HasFinish(const Handle* self) { return self->finish != NULL && self->finish != Py_None; }

/* 0, or -1 with an exception set. */
static int CallFinish(PyObject* object) {
  Handle* self = (Handle*)object;
  PyObject* made = PyObject_CallFunctionObjArgs(self->finish, object, NULL);
  if (made == NULL) return -1; /* native-H3: the next wait tries again */
  PyObject* const old_result = self->result;
  PyObject* const old_finish = self->finish;
  self->result = made;
  self->finish = NULL;
  Py_XDECREF(old_result);
  Py_XDECREF(old_finish);
  return 0;
}

/* Makes the result of an operation that has ended. 0, or -1 with an exception set.
 * native-H3: once: of several threads that wait the first makes it. */
static int Finish(PyObject* object) {
  Handle* self = (Handle*)object;
  if (!HasFinish(self)) return 0;
  if (self->finishing == NULL) self->finishing = PyThread_allocate_lock();
  if (self->finishing == NULL) return (void)PyErr_NoMemory(), -1;
  int mine = PyThread_acquire_lock(self->finishing, NOWAIT_LOCK);
  while (!mine) {
    Py_BEGIN_ALLOW_THREADS
    mine = PyThread_acquire_lock_timed(self->finishing, kSliceNs / 1000, 0) == PY_LOCK_ACQUIRED;
    Py_END_ALLOW_THREADS
    if (!mine && LookAround() != 0) return -1;
  }
  const int failed = HasFinish(self) ? CallFinish(object) : 0;
  PyThread_release_lock(self->finishing);
  return failed;
}

static PyObject* HandleWait(PyObject* object, PyObject* args, PyObject* kwargs) {
  const Handle* self = (Handle*)object;
  int64_t limit_ns;
  if (ParseTimeout(args, kwargs, &limit_ns) != 0 || WaitForEnd(object, limit_ns) != 0) return NULL;
  if (Finish(object) != 0) return NULL;
  PyObject* result = self->result != NULL ? self->result : Py_None;
  Py_INCREF(result);
  return result;
}

static PyObject* HandlePoll(PyObject* object, PyObject* unused) {
  (void)unused;
  Handle* self = (Handle*)object;
  const int known = self->life == current_life && !self->released;
  if (known && covey_poll(NULL, self->handle) == 0) Py_RETURN_FALSE;
  if (known) NoteSeen(self->handle);
  /* An error is for wait() to raise. */
  if (known && HasFinish(self) && covey_wait(NULL, self->handle, 0, NULL) == COVEY_OK)
    if (Finish(object) != 0) return NULL;
  Py_RETURN_TRUE;
}

static PyObject* HandleAwaited(PyObject* object, PyObject* unused) {
  (void)unused;
  Handle* self = (Handle*)object;
  const int known = self->life == current_life && !self->released;
  const int size = known ? covey_size(NULL) : 0;
  int32_t* ranks = calloc((size_t)(size > 0 ? size : 1), sizeof(*ranks));
  if (ranks == NULL) return PyErr_NoMemory();
  int count = 0;
  if (known) {
    ++self->waiting;
    Py_BEGIN_ALLOW_THREADS
    count = covey_awaited(NULL, self->handle, ranks, size);
    Py_END_ALLOW_THREADS
    --self->waiting;
  }
  const int told = count < 0 ? 0 : count < size ? count : size;
  PyObject* bytes =
      PyBytes_FromStringAndSize((const char*)ranks, told * (Py_ssize_t)sizeof(*ranks));
  free(ranks);
  return bytes;
}

static PyObject* TupleOf(const int64_t* numbers, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject* number = PyLong_FromLongLong(numbers[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) != 0) {
      Py_DECREF(tuple);
      return NULL;
    }
  }
  return tuple;
}

/* (memory, dtype, shape, rows); takes over result->data. */
static PyObject* ResultTuple(const covey_tensor* result, Py_ssize_t length_bytes,
                             const int64_t* rows, int size) {
  PyObject* memory = NewMemory(result->data, length_bytes, covey_free);
  PyObject* shape = TupleOf(result->shape, result->ndim);
  PyObject* row_tuple = TupleOf(rows, size);
  if (memory != NULL && shape != NULL && row_tuple != NULL)
    return Py_BuildValue("(NiNN)", memory, (int)result->dtype, shape, row_tuple);
  Py_XDECREF(memory);
  Py_XDECREF(shape);
  Py_XDECREF(row_tuple);
  return NULL;
}

static PyObject* HandleTakeResult(PyObject* object, PyObject* args) {
  Handle* self = (Handle*)object;
  int index, size, item_bytes;
  if (!PyArg_ParseTuple(args, "iii:_take_result", &index, &size, &item_bytes)) return NULL;
  if (RefuseOldHandle(self) != 0) return NULL;
  if (size < 1 || item_bytes < 1) {
    PyErr_SetString(PyExc_ValueError, "_take_result: size and item_bytes must be positive");
    return NULL;
  }
  int64_t* rows = calloc((size_t)size, sizeof(*rows));
  if (rows == NULL) return PyErr_NoMemory();
  covey_error error;
  ClearError(&error);
  covey_tensor result = COVEY_INIT(covey_tensor);
  const covey_code code = covey_result_take(NULL, self->handle, index, &result, rows, &error);
  error.code = code;
  PyObject* answer = code == COVEY_OK ? NULL : RaiseError(&error);
  if (code == COVEY_OK) {
    Py_ssize_t length_bytes = item_bytes;
    for (int i = 0; i < result.ndim; ++i) length_bytes *= (Py_ssize_t)result.shape[i];
    answer = ResultTuple(&result, length_bytes, rows, size);
  }
  free(rows);
  return answer;
}

static PyObject* HandleNumbers(PyObject* object, PyObject* args) {
  Handle* self = (Handle*)object;
  int count;
  if (!PyArg_ParseTuple(args, "i:numbers", &count) || RefuseOldHandle(self) != 0) return NULL;
  int64_t* rows = calloc((size_t)(count > 0 ? count : 1), sizeof(*rows));
  if (rows == NULL) return PyErr_NoMemory();
  covey_error error;
  ClearError(&error);
  covey_tensor unused = COVEY_INIT(covey_tensor);
  const covey_code code = covey_result(NULL, self->handle, 0, &unused, rows, &error);
  error.code = code;
  PyObject* answer = code == COVEY_OK ? TupleOf(rows, count) : RaiseError(&error);
  free(rows);
  return answer;
}

static PyMethodDef handle_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))HandleWait, METH_VARARGS | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\n"
     "Waits until the operation has ended and returns its result; again: the same result.\n\n"
     "Args:\n"
     "    timeout: seconds, None for no limit.\n\n"
     "Raises:\n"
     "    Timeout: not finished in time; the operation goes on and may be waited for again.\n"
     "    Mismatch, Aborted: the ranks disagree about the operation; a rank died or left.\n"
     "    KeyboardInterrupt: the operation goes on."},
    {"poll", HandlePoll, METH_NOARGS, "poll($self)\n--\n\nWhether ``wait`` would return at once."},
    {"_awaited", HandleAwaited, METH_NOARGS,
     "_awaited() -> int32 of each rank it waits for; empty: see core/api/covey_waiting.h."},
    {"_take_result", HandleTakeResult, METH_VARARGS,
     "_take_result(index, group_size, item_bytes) -> (Memory, dtype code, shape, rows per rank): "
     "once; the Memory outlives this Handle and the runtime."},
    {"_numbers", HandleNumbers, METH_VARARGS,
     "_numbers(count) -> numbers that an ended operation gave: of a join (1) the last to join."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, "Handle[T]: wait() returns a T."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef handle_members[] = {
    {"_result", T_OBJECT, offsetof(Handle, result), 0, NULL},
    {"_finish", T_OBJECT, offsetof(Handle, finish), 0, NULL},
    {"rows", T_OBJECT, offsetof(Handle, rows), 0,
     "After wait() of an operation that gathers: the extent of dimension 0 that came from each\n"
     "rank, in rank order; else None."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Handle, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static const char kHandleDoc[] =
    "One operation in flight. Made by the ``*_async`` functions.\n\n"
    "It may be dropped: the operation goes on and its tensors stay alive until it has ended.\n\n"
    "Attributes:\n"
    "    rows: after ``wait`` of what gathers, the rows from each rank; else None.\n\n"
    "Example:\n"
    "    >>> handle = covey.allreduce_async(tensor, name=\"loss\")\n"
    "    >>> handle.poll()  # doctest: +SKIP\n"
    "    False\n"
    "    >>> total = handle.wait()\n";

static PyType_Slot handle_slots[] = {
    {Py_tp_new, (void*)RefuseNew},   {Py_tp_dealloc, (void*)HandleDealloc},
    {Py_tp_methods, handle_methods}, {Py_tp_members, handle_members},
    {Py_tp_doc, (void*)kHandleDoc},  {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "covey.Handle",
    .basicsize = sizeof(Handle),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = handle_slots,
};

int AddHandleType(PyObject* module) {
  return (handle_type = AddType(module, &handle_spec, "Handle")) != NULL ? 0 : -1;
}
