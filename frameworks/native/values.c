/* Number types, and codecs of them: see core/api/covey_values.h. */
#include "core/api/covey_values.h"

#include "frameworks/native/native.h"

const char kCountNotFiniteDoc[] =
    "count_not_finite(dtype, address, count) -> how many elements are NaN or infinite";

PyObject* CountNotFinite(PyObject* module, PyObject* args) {
  (void)module;
  int dtype;
  unsigned long long address;
  long long count;
  if (!PyArg_ParseTuple(args, "iKL:count_not_finite", &dtype, &address, &count)) return NULL;
  int64_t found;
  Py_BEGIN_ALLOW_THREADS
  found = covey_count_not_finite((covey_dtype)dtype, (const void*)(uintptr_t)address, count);
  Py_END_ALLOW_THREADS
  return PyLong_FromLongLong(found);
}

const char kCopyDoc[] =
    "copy_past_caches(to, from, lengths): tuples of addresses, and of numbers of bytes";

PyObject* CopyPastCaches(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *to, *from, *lengths;
  if (!PyArg_ParseTuple(args, "O!O!O!:copy_past_caches", &PyTuple_Type, &to, &PyTuple_Type, &from,
                        &PyTuple_Type, &lengths))
    return NULL;
  const Py_ssize_t count = PyTuple_Size(to);
  if (PyTuple_Size(from) != count || PyTuple_Size(lengths) != count) {
    PyErr_SetString(PyExc_ValueError, "copy_past_caches: tuples of one length are needed");
    return NULL;
  }
  void** const targets = AddressesOf(to);
  void** const sources = targets == NULL ? NULL : AddressesOf(from);
  int64_t* const bytes = sources == NULL ? NULL : NumbersOf(lengths);
  if (bytes != NULL) {
    Py_BEGIN_ALLOW_THREADS
    covey_copy_past_caches(targets, sources, bytes, (size_t)count);
    Py_END_ALLOW_THREADS
  }
  free(targets);
  free(sources);
  free(bytes);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

const char kCodecResidualDoc[] =
    "codec_residual(codec, contribution, count, residual): addresses; what it leaves out";

PyObject* CodecResidual(PyObject* module, PyObject* args) {
  (void)module;
  const char* codec;
  unsigned long long contribution, residual;
  long long count;
  if (!PyArg_ParseTuple(args, "sKLK:codec_residual", &codec, &contribution, &count, &residual))
    return NULL;
  covey_error error;
  ClearError(&error);
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_codec_residual(codec, (const float*)(uintptr_t)contribution, count,
                              (float*)(uintptr_t)residual, &error);
  Py_END_ALLOW_THREADS
  return NoneOrError(code, &error);
}

PyObject* CodecBytes(PyObject* module, PyObject* args) {
  (void)module;
  const char* codec;
  long long count;
  if (!PyArg_ParseTuple(args, "sL:codec_bytes", &codec, &count)) return NULL;
  covey_error error;
  ClearError(&error);
  int64_t bytes = 0;
  const covey_code code = covey_codec_bytes(codec, count, &bytes, &error);
  if (code == COVEY_OK) return PyLong_FromLongLong(bytes);
  return NoneOrError(code, &error);
}

const char kCodecEncodeDoc[] = "codec_encode(codec, elements, count, seed, step, codes): addresses";

PyObject* CodecEncode(PyObject* module, PyObject* args) {
  (void)module;
  const char* codec;
  unsigned long long elements, seed, codes;
  long long count;
  float step;
  if (!PyArg_ParseTuple(args, "sKLKfK:codec_encode", &codec, &elements, &count, &seed, &step,
                        &codes))
    return NULL;
  covey_error error;
  ClearError(&error);
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_codec_encode(codec, (const float*)(uintptr_t)elements, count, seed, step,
                            (void*)(uintptr_t)codes, &error);
  Py_END_ALLOW_THREADS
  return NoneOrError(code, &error);
}

const char kCodecDecodeDoc[] =
    "codec_decode(codec, codes, count, elements): addresses; elements: the reference before";

PyObject* CodecDecode(PyObject* module, PyObject* args) {
  (void)module;
  const char* codec;
  unsigned long long codes, elements;
  long long count;
  if (!PyArg_ParseTuple(args, "sKLK:codec_decode", &codec, &codes, &count, &elements)) return NULL;
  covey_error error;
  ClearError(&error);
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_codec_decode(codec, (const void*)(uintptr_t)codes, count,
                            (float*)(uintptr_t)elements, &error);
  Py_END_ALLOW_THREADS
  return NoneOrError(code, &error);
}

PyObject* CodecCheck(PyObject* module, PyObject* args) {
  (void)module;
  const char* codec;
  int feeds_back;
  if (!PyArg_ParseTuple(args, "sp:codec_check", &codec, &feeds_back)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_codec_check(codec, feeds_back, &error), &error);
}

static size_t Codecs(const void* context, char* text, size_t capacity) {
  (void)context;
  return covey_codecs(text, capacity);
}

PyObject* CodecsText(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return TextOf(Codecs, NULL);
}
