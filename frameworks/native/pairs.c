/* Pairs: see core/api/covey_pairs.h. Numbers stand for them; those of an earlier life are
 * unknown. */
#include "frameworks/native/native.h"

#include "core/api/covey_pairs.h"

enum { kSliceNs = 50 * 1000 * 1000 }; /* how long a signal waits at most */

PyObject* PairsOpen(PyObject* module, PyObject* args) {
  (void)module;
  covey_pairs_config config = COVEY_INIT(covey_pairs_config);
  unsigned long long group;
  PyObject *method, *dtypes, *counts, *addresses;
  if (!PyArg_ParseTuple(args, "KsOO!O!O!:pairs_open", &group, &config.name, &method, &PyTuple_Type,
                        &dtypes, &PyTuple_Type, &counts, &PyTuple_Type, &addresses))
    return NULL;
  config.method = MethodOf(method);
  if (PyErr_Occurred()) return NULL;
  const Py_ssize_t spans = PyTuple_Size(dtypes);
  if (PyTuple_Size(counts) != spans || PyTuple_Size(addresses) != spans || spans > INT16_MAX) {
    PyErr_SetString(PyExc_ValueError, "pairs_open: as many counts and addresses as dtypes");
    return NULL;
  }
  int64_t* lengths = NumbersOf(counts);
  void** model = lengths == NULL ? NULL : AddressesOf(addresses);
  covey_dtype* types = model == NULL ? NULL : DTypesOf(dtypes);
  PyObject* answer = NULL;
  if (types != NULL) {
    config.group = group;
    config.num_spans = (int32_t)spans;
    config.dtypes = types;
    config.counts = lengths;
    covey_pairs pairs = 0;
    covey_error error;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_pairs_open(NULL, &config, (const void* const*)model, &pairs, &error);
    Py_END_ALLOW_THREADS
    answer = error.code == COVEY_OK ? PyLong_FromUnsignedLongLong(pairs) : RaiseError(&error);
  }
  free(types);
  free(model);
  free(lengths);
  return answer;
}

PyObject* PairsStep(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long pairs;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KO!:pairs_step", &pairs, &PyTuple_Type, &tuple)) return NULL;
  void** model = AddressesOf(tuple);
  if (model == NULL) return NULL;
  covey_pairs_met met = COVEY_INIT(covey_pairs_met);
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_pairs_step(NULL, pairs, model, &met, &error);
  Py_END_ALLOW_THREADS
  free(model);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(ii)", (int)met.partner, (int)met.merged);
}

PyObject* PairsLook(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long pairs;
  int rank;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KiO!:pairs_look", &pairs, &rank, &PyTuple_Type, &tuple)) return NULL;
  void** to = AddressesOf(tuple);
  if (to == NULL) return NULL;
  int32_t whole = 0;
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_pairs_look(NULL, pairs, rank, to, &whole, &error);
  Py_END_ALLOW_THREADS
  free(to);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return PyBool_FromLong(whole);
}

typedef covey_code (*Gathering)(covey_runtime* runtime, covey_pairs pairs, void* const* spans,
                                int64_t timeout_ns, covey_error* error);

static PyObject* Gather(PyObject* args, const char* format, Gathering gathering) {
  unsigned long long pairs;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, format, &pairs, &PyTuple_Type, &tuple)) return NULL;
  void** model = AddressesOf(tuple);
  if (model == NULL) return NULL;
  covey_error error;
  int began = 0;
  do {
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = gathering(NULL, pairs, model, kSliceNs, &error);
    Py_END_ALLOW_THREADS
    if (began) TellShutdown(&error);
    began = 1;
    /* With a peer it is max_wait that is over. */
  } while (error.code == COVEY_TIMEOUT && error.peer_rank < 0 && LookAround() == 0);
  free(model);
  if (PyErr_Occurred()) return NULL;
  if (error.code != COVEY_OK) return RaiseError(&error);
  Py_RETURN_NONE;
}

PyObject* PairsFinish(PyObject* module, PyObject* args) {
  (void)module;
  return Gather(args, "KO!:pairs_finish", &covey_pairs_finish);
}

PyObject* PairsSettle(PyObject* module, PyObject* args) {
  (void)module;
  return Gather(args, "KO!:pairs_settle", &covey_pairs_settle);
}

PyObject* PairsClose(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long pairs;
  if (!PyArg_ParseTuple(args, "K:pairs_close", &pairs)) return NULL;
  covey_pairs_close(NULL, pairs);
  Py_RETURN_NONE;
}
