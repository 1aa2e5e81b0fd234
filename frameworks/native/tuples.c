/* Tuples of numbers as arrays. */
#include "frameworks/native/native.h"

int64_t* NumbersOf(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  int64_t* numbers = calloc((size_t)count + 1, sizeof(*numbers));
  if (numbers == NULL) return (int64_t*)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
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
