/* Exceptions of the C API's errors, and types that Python cannot make objects of. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "frameworks/native/native.h"

void ClearError(covey_error* error) {
  error->struct_size = sizeof(*error);
  error->code = COVEY_OK;
  error->peer_rank = -1;
  error->message[0] = '\0';
}

PyObject* RaiseError(const covey_error* error) {
  PyObject* module = PyImport_ImportModule("covey.errors");
  if (module == NULL) return NULL;
  const size_t length = strnlen(error->message, sizeof(error->message));
  PyObject* text = PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)length, "replace");
  PyObject* exception = NULL;
  if (text != NULL) {
    exception = PyObject_CallMethod(module, "from_code", "iiO", (int)error->code,
                                    (int)error->peer_rank, text);
  }
  if (exception != NULL) PyErr_SetObject((PyObject*)Py_TYPE(exception), exception);
  Py_XDECREF(exception);
  Py_XDECREF(text);
  Py_DECREF(module);
  return NULL;
}

void RaiseInvalidArgument(const char* format, ...) {
  covey_error error;
  ClearError(&error);
  error.code = COVEY_INVALID_ARGUMENT;
  va_list values;
  va_start(values, format);
  vsnprintf(error.message, sizeof(error.message), format, values);
  va_end(values);
  RaiseError(&error);
}

PyObject* RefuseNew(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  (void)type;
  (void)args;
  (void)kwargs;
  PyErr_SetString(PyExc_TypeError, "objects of this type are made by functions of _native only");
  return NULL;
}

PyTypeObject* AddType(PyObject* module, PyType_Spec* spec, const char* name) {
  PyObject* type = PyType_FromSpec(spec);
  if (type == NULL) return NULL;
  Py_INCREF(type); /* One reference stays with the caller, for as long as the process lives. */
  if (PyModule_AddObject(module, name, type) == 0) return (PyTypeObject*)type;
  Py_DECREF(type);
  Py_DECREF(type);
  return NULL;
}

PyObject* NoneOrError(covey_code code, covey_error* error) {
  if (code == COVEY_OK) Py_RETURN_NONE;
  error->code = code;
  return RaiseError(error);
}
