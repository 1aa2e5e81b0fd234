/* Windows: see core/api/covey_window.h. */
#include "frameworks/native/native.h"

#include "core/api/covey_window.h"

/* Addresses and lengths of as many spans each; 0, or -1 with an exception set. */
static int SpansOf(PyObject* addresses, PyObject* lengths, void*** spans, int64_t** bytes) {
  const Py_ssize_t count = PyTuple_Size(addresses);
  if (PyTuple_Size(lengths) != count || count > INT16_MAX) {
    PyErr_SetString(PyExc_ValueError, "windows: as many lengths as addresses");
    return -1;
  }
  *bytes = NULL;
  *spans = AddressesOf(addresses);
  if (*spans == NULL) return -1;
  *bytes = NumbersOf(lengths);
  if (*bytes != NULL) return 0;
  free(*spans);
  return -1;
}

PyObject* WindowOpen(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *addresses, *lengths;
  if (!PyArg_ParseTuple(args, "O!O!:window_open", &PyTuple_Type, &addresses, &PyTuple_Type,
                        &lengths))
    return NULL;
  void** spans;
  int64_t* bytes;
  if (SpansOf(addresses, lengths, &spans, &bytes) != 0) return NULL;
  covey_error error;
  ClearError(&error);
  int64_t place = 0;
  error.code =
      covey_window_open(NULL, spans, bytes, (int32_t)PyTuple_Size(addresses), &place, &error);
  free(spans);
  free(bytes);
  return error.code == COVEY_OK ? PyLong_FromLongLong(place) : RaiseError(&error);
}

PyObject* WindowBegin(PyObject* module, PyObject* args) {
  (void)module;
  long long place;
  if (!PyArg_ParseTuple(args, "L:window_begin", &place)) return NULL;
  covey_window_begin(NULL, place);
  Py_RETURN_NONE;
}

PyObject* WindowEnd(PyObject* module, PyObject* args) {
  (void)module;
  long long place, version;
  if (!PyArg_ParseTuple(args, "LL:window_end", &place, &version)) return NULL;
  covey_window_end(NULL, place, version);
  Py_RETURN_NONE;
}

PyObject* WindowClose(PyObject* module, PyObject* args) {
  (void)module;
  long long place;
  if (!PyArg_ParseTuple(args, "L:window_close", &place)) return NULL;
  covey_window_close(NULL, place);
  Py_RETURN_NONE;
}

PyObject* WindowLook(PyObject* module, PyObject* args) {
  (void)module;
  int rank;
  long long place;
  PyObject *addresses, *lengths;
  if (!PyArg_ParseTuple(args, "iLO!O!:window_look", &rank, &place, &PyTuple_Type, &addresses,
                        &PyTuple_Type, &lengths))
    return NULL;
  void** to;
  int64_t* bytes;
  if (SpansOf(addresses, lengths, &to, &bytes) != 0) return NULL;
  const int32_t count = (int32_t)PyTuple_Size(addresses);
  covey_error error;
  ClearError(&error);
  covey_window_state state = COVEY_WINDOW_NOTHING;
  int64_t version = 0;
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_window_look(NULL, rank, place, to, bytes, count, &state, &version, &error);
  Py_END_ALLOW_THREADS
  free(to);
  free(bytes);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(iL)", (int)state, (long long)version);
}
