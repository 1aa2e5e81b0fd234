/* Waiting in rounds, and snapshots: see core/api/covey_rounds.h. */
#include "frameworks/native/native.h"

#include "core/api/covey_rounds.h"

enum { kSliceNs = 50 * 1000 * 1000 }; /* how long a signal waits at most */
enum { kMostParts = 1 << 20 };

int LookAround(void) {
  if (PyErr_CheckSignals() != 0) return -1;
  PyObject* module = PyImport_ImportModule("covey.state");
  PyObject* state = module == NULL ? NULL : PyObject_GetAttrString(module, "state");
  PyObject* answer = state == NULL ? NULL : PyObject_CallMethod(state, "help", NULL);
  Py_XDECREF(state);
  Py_XDECREF(module);
  if (answer == NULL) return -1;
  Py_DECREF(answer);
  return 0;
}

void TellShutdown(covey_error* error) {
  if (error->code != COVEY_NOT_INITIALIZED) return;
  error->code = COVEY_ABORTED;
  PyOS_snprintf(error->message, sizeof(error->message),
                "this rank has shut down while another thread of it waited");
}

PyObject* RoundsOfferAgain(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  if (!PyArg_ParseTuple(args, "K:rounds_offer_again", &rounds)) return NULL;
  covey_error error;
  ClearError(&error);
  int64_t step = 0;
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_rounds_offer_again(NULL, rounds, &step, &error);
  Py_END_ALLOW_THREADS
  return error.code == COVEY_OK ? PyLong_FromLongLong(step) : RaiseError(&error);
}

PyObject* RoundsServe(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long version, applied;
  if (!PyArg_ParseTuple(args, "KLL:rounds_serve", &rounds, &version, &applied)) return NULL;
  covey_error error;
  covey_round_event event = COVEY_ROUND_TIME;
  for (int began = 0; event == COVEY_ROUND_TIME; began = 1) {
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_rounds_serve(NULL, rounds, version, applied, kSliceNs, &event, &error);
    Py_END_ALLOW_THREADS
    if (began) TellShutdown(&error);
    if (error.code != COVEY_OK) return RaiseError(&error);
    if (event == COVEY_ROUND_TIME && LookAround() != 0) return NULL;
  }
  return PyLong_FromLong((long)event);
}

PyObject* RoundsAsked(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long applied;
  if (!PyArg_ParseTuple(args, "KL:rounds_asked", &rounds, &applied)) return NULL;
  return PyBool_FromLong(covey_rounds_asked(NULL, rounds, applied));
}

PyObject* RoundsGive(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long applied;
  PyObject *addresses, *lengths;
  if (!PyArg_ParseTuple(args, "KLO!O!:rounds_give", &rounds, &applied, &PyTuple_Type, &addresses,
                        &PyTuple_Type, &lengths))
    return NULL;
  const Py_ssize_t count = PyTuple_Size(addresses);
  if (PyTuple_Size(lengths) != count || count > kMostParts) {
    PyErr_SetString(PyExc_ValueError, "rounds_give: as many lengths as addresses");
    return NULL;
  }
  const void** parts = calloc((size_t)count + 1, sizeof(*parts));
  int64_t* bytes = calloc((size_t)count + 1, sizeof(*bytes));
  PyObject* answer = NULL;
  if (parts == NULL || bytes == NULL) {
    PyErr_NoMemory();
  } else {
    for (Py_ssize_t i = 0; i < count; ++i) {
      parts[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
      bytes[i] = PyLong_AsLongLong(PyTuple_GetItem(lengths, i));
    }
    if (!PyErr_Occurred()) {
      covey_error error;
      ClearError(&error);
      Py_BEGIN_ALLOW_THREADS
      error.code = covey_rounds_give(NULL, rounds, applied, parts, bytes, (int32_t)count, &error);
      Py_END_ALLOW_THREADS
      answer = NoneOrError(error.code, &error);
    }
  }
  free(bytes);
  free(parts);
  return answer;
}

PyObject* RoundsSeek(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long applied;
  if (!PyArg_ParseTuple(args, "KL:rounds_seek", &rounds, &applied)) return NULL;
  covey_snapshot snapshot = COVEY_INIT(covey_snapshot);
  snapshot.rank = -1;
  while (snapshot.rank < 0) {
    covey_error error;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_rounds_seek(NULL, rounds, applied, kSliceNs, &snapshot, &error);
    Py_END_ALLOW_THREADS
    if (error.code != COVEY_OK) return RaiseError(&error);
    if (LookAround() != 0) return NULL;
  }
  return Py_BuildValue("(iLL(KK))", (int)snapshot.rank, (long long)snapshot.version,
                       (long long)snapshot.length_bytes, (unsigned long long)snapshot.place[0],
                       (unsigned long long)snapshot.place[1]);
}

PyObject* RoundsTake(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds, first, second;
  long long version, length_bytes, address;
  int rank;
  if (!PyArg_ParseTuple(args, "K(iLL(KK))L:rounds_take", &rounds, &rank, &version, &length_bytes,
                        &first, &second, &address))
    return NULL;
  covey_snapshot snapshot = COVEY_INIT(covey_snapshot);
  snapshot.rank = rank;
  snapshot.version = version;
  snapshot.length_bytes = length_bytes;
  snapshot.place[0] = first;
  snapshot.place[1] = second;
  int32_t taken = 0;
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code =
      covey_rounds_take(NULL, rounds, &snapshot, (void*)(uintptr_t)address, &taken, &error);
  Py_END_ALLOW_THREADS
  return error.code == COVEY_OK ? PyBool_FromLong(taken) : RaiseError(&error);
}
