/* Tuples of numbers as arrays, and arrays of addresses as tuples. */
#include "frameworks/native/native.h"

covey_dtype* DTypesOf(PyObject* tuple) {
  int64_t* codes = NumbersOf(tuple);
  if (codes == NULL) return NULL;
  const Py_ssize_t count = PyTuple_Size(tuple);
  covey_dtype* dtypes = calloc((size_t)count + 1, sizeof(*dtypes));
  for (Py_ssize_t i = 0; dtypes != NULL && i < count; ++i) dtypes[i] = (covey_dtype)codes[i];
  free(codes);
  if (dtypes == NULL) PyErr_NoMemory();
  return dtypes;
}

PyObject* TupleOfAddresses(void* const* addresses, int count) {
  PyObject* answer = PyTuple_New(count);
  for (int i = 0; answer != NULL && i < count; ++i) {
    PyObject* address = PyLong_FromVoidPtr(addresses[i]);
    if (address == NULL || PyTuple_SetItem(answer, i, address) != 0) Py_CLEAR(answer);
  }
  return answer;
}

int64_t* NumbersOf(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  int64_t* numbers = calloc((size_t)count + 1, sizeof(*numbers));
  if (numbers == NULL) return (int64_t*)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  if (!PyErr_Occurred()) return numbers;
  free(numbers);
  return NULL;
}

int32_t* RanksOf(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  int32_t* ranks = calloc((size_t)count + 1, sizeof(*ranks));
  if (ranks == NULL) return (int32_t*)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); ++i) {
    const long long rank = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (rank < INT32_MIN || rank > INT32_MAX)
      PyErr_Format(PyExc_ValueError, "there is no rank %lld", rank);
    ranks[i] = (int32_t)rank;
  }
  if (!PyErr_Occurred()) return ranks;
  free(ranks);
  return NULL;
}

double* FractionsOf(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  double* numbers = calloc((size_t)count + 1, sizeof(*numbers));
  if (numbers == NULL) return (double*)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) numbers[i] = PyFloat_AsDouble(PyTuple_GetItem(tuple, i));
  if (!PyErr_Occurred()) return numbers;
  free(numbers);
  return NULL;
}

void** AddressesOf(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  void** addresses = calloc((size_t)count + 1, sizeof(*addresses));
  if (addresses == NULL) return (void**)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) addresses[i] = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, i));
  if (!PyErr_Occurred()) return addresses;
  free(addresses);
  return NULL;
}
