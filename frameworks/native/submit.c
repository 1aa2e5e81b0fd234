/* Submitting operations: Python arguments -> covey_request -> covey_submit. */
#include <stdlib.h>

#include "frameworks/native/native.h"

int ParseMemory(PyObject* object, covey_tensor* tensor) {
  if (PyLong_Check(object)) {
    tensor->data = PyLong_AsVoidPtr(object);
    return tensor->data == NULL && PyErr_Occurred() ? -1 : 0;
  }
  if (PyByteArray_Check(object)) {
    tensor->data = PyByteArray_AsString(object);
    return 0;
  }
  if (PyBytes_Check(object)) {
    tensor->data = PyBytes_AsString(object);
    return 0;
  }
  unsigned long long address, stream;
  if (!PyTuple_Check(object)) {
    PyErr_SetString(PyExc_TypeError,
                    "a tensor's address must be an int, bytes, bytearray, or on CUDA a tuple");
    return -1;
  }
  if (!PyArg_ParseTuple(object, "KiK;(address, device, stream)", &address, &tensor->device_index,
                        &stream))
    return -1;
  tensor->data = (void*)(uintptr_t)address;
  tensor->stream = (void*)(uintptr_t)stream;
  tensor->device_type = COVEY_CUDA;
  return 0;
}

int ParseShape(PyObject* object, int64_t* shape, int32_t* ndim) {
  if (!PyTuple_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "a tensor's shape must be a tuple");
    return -1;
  }
  const Py_ssize_t count = PyTuple_Size(object);
  /* native-H6: the shape has room for COVEY_MAX_DIMS. */
  if (count > COVEY_MAX_DIMS) {
    RaiseInvalidArgument("a tensor may have at most %d dimensions, this one has %zd",
                         (int)COVEY_MAX_DIMS, count);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    shape[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
    if (shape[i] == -1 && PyErr_Occurred()) return -1;
  }
  *ndim = (int32_t)count;
  return 0;
}

void FillTensor(covey_tensor* tensor, int dtype, const int64_t* shape, int32_t ndim, void* data) {
  *tensor = (covey_tensor)COVEY_INIT(covey_tensor);
  tensor->dtype = (covey_dtype)dtype;
  tensor->ndim = ndim;
  tensor->shape = shape;
  tensor->data = data;
}

PyObject* SubmitRequest(const covey_request* request, PyObject* keep) {
  SweepOrphans(0);
  if (RefuseRepeated(request) != 0) return NULL;
  covey_error error;
  ClearError(&error);
  covey_handle handle = 0;
  const covey_code code = covey_submit(NULL, request, &handle, &error);
  if (code != COVEY_OK) {
    error.code = code;
    return RaiseError(&error);
  }
  NoteSubmitted(request, handle);
  /* native-H1: the handle keeps the tensors while the operation is in flight. */
  return NewHandle(handle, keep);
}

const char kSubmitOneDoc[] =
    "submit1(kind, group, name, op, root, prescale, postscale, dtype, input, output, shape, keep,\n"
    "waits=0, output_shape=None, splits=None, unfit=None, codec=None, neighbors=None,\n"
    "codec_draw=0, feeds_back=0) -> Handle.\n"
    "Submits an operation on one tensor.\n"
    "`output` None means in place (what gathers: the runtime allocates); it has the shape\n"
    "`output_shape`, None: `shape`. An address is an int, or on CUDA (address, device number,\n"
    "stream), and the result is ordered on that stream. `keep` is held until the operation has\n"
    "ended. `waits`: .wait() follows at once on this thread. `splits`: a tuple, of an alltoall.\n"
    "`unfit`: why it must not be mixed with that of others; empty: it was looked at. `neighbors`:\n"
    "(own weight, sources, weights, receivers or None, any_sum), of a neighbor_allreduce.\n"
    "`codec_draw`: what a codec that rounds at random draws by; 0: by how often it was done.\n"
    "`feeds_back`: 1: the codec's residual is added to the next contribution.";

/* Fills request->splits, to be freed. 0, or -1 with an exception set. */
static int ParseSplits(PyObject* object, covey_request* request) {
  if (object == Py_None) return 0;
  if (!PyTuple_Check(object) || PyTuple_Size(object) > INT32_MAX) {
    PyErr_SetString(PyExc_TypeError, "splits must be a tuple");
    return -1;
  }
  const Py_ssize_t count = PyTuple_Size(object);
  int64_t* splits = malloc(((size_t)count + 1) * sizeof(*splits));
  if (splits == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  request->splits = splits;
  request->num_splits = (int32_t)count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    splits[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
    if (splits[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

PyObject* SubmitOne(PyObject* module, PyObject* args) {
  (void)module;
  covey_request request = COVEY_INIT(covey_request);
  int kind, op, dtype;
  unsigned long long group;
  PyObject *input_address, *output_address, *shape_tuple, *keep;
  PyObject *output_shape = Py_None, *splits = Py_None, *neighbors = Py_None;
  unsigned long long draw = 0;
  if (!PyArg_ParseTuple(args, "iKziiddiOOOO|IOOzzOKI:submit1", &kind, &group, &request.name, &op,
                        &request.root, &request.prescale, &request.postscale, &dtype,
                        &input_address, &output_address, &shape_tuple, &keep, &request.waits,
                        &output_shape, &splits, &request.unfit, &request.codec, &neighbors, &draw,
                        &request.feeds_back)) {
    return NULL;
  }
  int64_t shape[COVEY_MAX_DIMS];
  int64_t out_shape[COVEY_MAX_DIMS];
  int32_t ndim;
  if (ParseShape(shape_tuple, shape, &ndim) != 0) return NULL;
  covey_tensor input, output;
  FillTensor(&input, dtype, shape, ndim, NULL);
  if (ParseMemory(input_address, &input) != 0) return NULL;
  if (output_address != Py_None) {
    if (output_shape == Py_None) output_shape = shape_tuple;
    if (ParseShape(output_shape, out_shape, &ndim) != 0) return NULL;
    FillTensor(&output, dtype, out_shape, ndim, NULL);
    if (ParseMemory(output_address, &output) != 0) return NULL;
    request.outputs = &output;
  }
  request.kind = (covey_kind)kind;
  request.group = group;
  request.op = (covey_op)op;
  request.codec_draw = draw;
  request.num_tensors = 1;
  request.inputs = &input;
  const int parsed = ParseSplits(splits, &request) + ParseNeighbors(neighbors, &request);
  PyObject* handle = parsed == 0 ? SubmitRequest(&request, keep) : NULL;
  FreeNeighbors(&request);
  free((void*)request.splits);
  return handle;
}

/* Fills `dims` from a tuple of (address, dtype, shape). 0, or -1 with an exception set. */
static int ParseTensors(PyObject* tuple, Dims* dims, covey_tensor* tensors) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GetItem(tuple, i);
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 3) {
      PyErr_SetString(PyExc_TypeError, "a tensor must be a tuple (address, dtype, shape)");
      return -1;
    }
    int32_t ndim;
    const long dtype = PyLong_AsLong(PyTuple_GetItem(item, 1));
    if (dtype == -1 && PyErr_Occurred()) return -1;
    if (ParseShape(PyTuple_GetItem(item, 2), dims[i].shape, &ndim) != 0) return -1;
    FillTensor(&tensors[i], (int)dtype, dims[i].shape, ndim, NULL);
    if (ParseMemory(PyTuple_GetItem(item, 0), &tensors[i]) != 0) return -1;
  }
  return 0;
}

const char kSubmitDoc[] =
    "submit(kind, group, name, op, root, prescale, postscale, inputs, outputs, keep, codec=None,\n"
    "waits=0) -> Handle.\n"
    "Submits an operation on any number of tensors. `inputs` and `outputs` are tuples of\n"
    "(address, dtype code, shape); `outputs` None means in place (allgather: the runtime\n"
    "allocates). `keep` is held until the operation has ended. `waits`: .wait() follows at once\n"
    "on this thread.";

PyObject* Submit(PyObject* module, PyObject* args) {
  (void)module;
  covey_request request = COVEY_INIT(covey_request);
  int kind, op;
  unsigned long long group;
  PyObject *inputs, *outputs, *keep;
  if (!PyArg_ParseTuple(args, "iKziiddO!OO|zi:submit", &kind, &group, &request.name, &op,
                        &request.root, &request.prescale, &request.postscale, &PyTuple_Type,
                        &inputs, &outputs, &keep, &request.codec, &request.waits)) {
    return NULL;
  }
  const Py_ssize_t count = PyTuple_Size(inputs);
  if (outputs != Py_None && (!PyTuple_Check(outputs) || PyTuple_Size(outputs) != count)) {
    PyErr_SetString(PyExc_ValueError, "outputs must be None or a tuple as long as inputs");
    return NULL;
  }
  const size_t sides = outputs == Py_None ? 1 : 2;
  const size_t total = sides * (size_t)count;
  Dims* dims = malloc((total + 1) * sizeof(*dims));
  covey_tensor* tensors = malloc((total + 1) * sizeof(*tensors));
  PyObject* handle = NULL;
  if (dims == NULL || tensors == NULL) {
    PyErr_NoMemory();
  } else if (ParseTensors(inputs, dims, tensors) == 0 &&
             (sides == 1 || ParseTensors(outputs, dims + count, tensors + count) == 0)) {
    request.kind = (covey_kind)kind;
    request.group = group;
    request.op = (covey_op)op;
    request.num_tensors = (int32_t)count;
    request.inputs = count == 0 ? NULL : tensors;
    request.outputs = sides == 1 || count == 0 ? NULL : tensors + count;
    handle = SubmitRequest(&request, keep);
  }
  free(dims);
  free(tensors);
  return handle;
}
