/* State of a training beside the model: see core/api/covey_trainer.h. */
#include "core/api/covey_trainer.h"

#include "frameworks/native/native.h"

/* The UTF-8 of a name, which `bytes` holds from then on; NULL with an exception set. */
static const char* NameOf(PyObject* name, PyObject* bytes) {
  PyObject* text = PyUnicode_AsUTF8String(name);
  char* letters = NULL;
  const int is_held = text != NULL && PyBytes_AsStringAndSize(text, &letters, NULL) == 0 &&
                      PyList_Append(bytes, text) == 0;
  Py_XDECREF(text);
  return is_held ? letters : NULL;
}

/* 0, or -1 with an exception set. `bytes` holds the names. */
static int FillStateArrays(PyObject* names, PyObject* ops, void* const* addresses,
                           const covey_dtype* dtypes, const int64_t* counts, PyObject* bytes,
                           covey_state_array* arrays, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    const int is_floating = dtypes[i] <= COVEY_BFLOAT16;
    covey_state_array* array = &arrays[i];
    array->struct_size = sizeof(*array);
    array->data = addresses[i];
    array->dtype = dtypes[i];
    array->count = counts[i];
    array->op = is_floating ? COVEY_AVERAGE : COVEY_MAX;
    if (ops != Py_None) array->op = (covey_op)PyLong_AsLong(PyTuple_GetItem(ops, i));
    if (names != Py_None) array->name = NameOf(PyTuple_GetItem(names, i), bytes);
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

static int IsNoneOrTuple(PyObject* object, Py_ssize_t count) {
  return object == Py_None || (PyTuple_Check(object) && PyTuple_Size(object) == count);
}

PyObject* TrainerList(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  PyObject *names, *addresses, *dtypes, *counts, *ops;
  if (!PyArg_ParseTuple(args, "KOO!O!O!O:trainer_list", &trainer, &names, &PyTuple_Type, &addresses,
                        &PyTuple_Type, &dtypes, &PyTuple_Type, &counts, &ops))
    return NULL;
  const Py_ssize_t count = PyTuple_Size(addresses);
  if (PyTuple_Size(dtypes) != count || PyTuple_Size(counts) != count ||
      !IsNoneOrTuple(names, count) || !IsNoneOrTuple(ops, count) || count > INT32_MAX) {
    PyErr_SetString(PyExc_ValueError,
                    "trainer_list: as many names (or None), dtypes, counts and ops (or None) as "
                    "addresses");
    return NULL;
  }
  void** spans = AddressesOf(addresses);
  covey_dtype* types = spans == NULL ? NULL : DTypesOf(dtypes);
  int64_t* lengths = types == NULL ? NULL : NumbersOf(counts);
  PyObject* bytes = lengths == NULL ? NULL : PyList_New(0);
  covey_state_array* arrays =
      bytes == NULL ? NULL : calloc((size_t)count + 1, sizeof(covey_state_array));
  if (bytes != NULL && arrays == NULL) PyErr_NoMemory();
  covey_error error;
  ClearError(&error);
  PyObject* answer = NULL;
  if (arrays != NULL &&
      FillStateArrays(names, ops, spans, types, lengths, bytes, arrays, count) == 0)
    answer = NoneOrError(covey_trainer_list(NULL, trainer, arrays, (int32_t)count, &error), &error);
  free(arrays);
  Py_XDECREF(bytes);
  free(lengths);
  free(types);
  free(spans);
  return answer;
}

/* Appends `item`, which is taken over, or clears the list with an exception set. */
static void AppendTo(PyObject** list, PyObject* item) {
  if (item == NULL || PyList_Append(*list, item) != 0) Py_CLEAR(*list);
  Py_XDECREF(item);
}

PyObject* TrainerListed(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_listed", &trainer)) return NULL;
  PyObject* arrays = PyList_New(0);
  for (int32_t i = 0; arrays != NULL; ++i) {
    void* data = NULL;
    covey_dtype dtype = COVEY_FLOAT32;
    int64_t count = 0;
    const char* name = covey_trainer_listed(NULL, trainer, i, &data, &dtype, &count);
    if (name == NULL) break;
    AppendTo(&arrays,
             Py_BuildValue("(sNiL)", name, PyLong_FromVoidPtr(data), (int)dtype, (long long)count));
  }
  return arrays;
}

PyObject* TrainerState(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_state", &trainer)) return NULL;
  PyObject* arrays = PyList_New(0);
  for (int32_t i = 0; arrays != NULL; ++i) {
    void* address = NULL;
    int64_t bytes = 0;
    const char* name = covey_trainer_state(NULL, trainer, i, &address, &bytes);
    if (name == NULL) break;
    AppendTo(&arrays, Py_BuildValue("(sNL)", name, PyLong_FromVoidPtr(address), (long long)bytes));
  }
  return arrays;
}

PyObject* TrainerArrivals(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_arrivals", &trainer)) return NULL;
  covey_arrival taken[256];
  const int64_t most = sizeof(taken) / sizeof(taken[0]);
  PyObject* arrivals = PyList_New(0);
  for (int64_t count = most; arrivals != NULL && count == most;) {
    count = covey_trainer_arrivals(NULL, trainer, taken, most);
    for (int64_t i = 0; i < count; ++i)
      AppendTo(&arrivals, Py_BuildValue("(LLi)", (long long)taken[i].exchange,
                                        (long long)taken[i].at_ns, (int)taken[i].needed));
  }
  return arrivals;
}
