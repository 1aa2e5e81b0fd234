/* The type covey._native.Shortcut: an operation on a tensor, or on a list of them, called in the
 * usual way and begun without the Python layers that handle the unusual.
 *
 * It is given the arguments of the Python function as they came, and either begins the operation or
 * answers None, having done nothing: then the Python way decides, and says what is wrong if
 * something is. The usual way: the tensor (or list) by position, at most `name`, `op` and
 * `process_set` by keyword, and a tensor that can be sent as it lies in memory (in a list: all of
 * one dtype). The questions to tensors are attribute names: no framework is known. Types that
 * have one are read by DLPack's table instead (dlpack.c).
 */
#include <stdlib.h>
#include <string.h>

#include "frameworks/native/native.h"

enum { kMostOps = 8, kMostName = 480, kMostTypes = 4 };

/* The tuple that a shortcut is made of. The questions to a tensor come first, as attribute names:
 * two that are to be True (the second is a method), its dtype, the address of its memory (a
 * method), its shape, a tuple, and one to be False (a method): that it means other numbers than lie
 * there. Then the dtypes by covey_dtype, the types (and none of theirs) that may be read by a
 * table, two functions: tensor -> a new one like it, op as users give it -> covey_op; the group of
 * number 0; the names of the keywords; that of a group's number. */
enum {
  kIsHere,
  kIsDense,
  kDtype,
  kAddress,
  kShape,
  kIsOther,
  kDtypes,
  kTypes,
  kEmptyLike,
  kOpCode,
  kWorld,
  kNameKey,
  kOpKey,
  kGroupKey,
  kGroupNumber,
  kParts
};

typedef struct {
  PyObject* op; /* as users give it */
  int code;     /* covey_op */
} KnownOp;

typedef struct {
  PyObject* type;
  const ExchangeTable* table; /* not NULL */
} KnownType;

typedef struct {
  PyObject_HEAD
  covey_kind kind;
  int grouped, in_place;
  int waits;              /* the request says that a wait follows at once */
  int ends;               /* the call waits */
  PyObject* kind_name;    /* bytes: "allreduce." */
  PyObject* parts;        /* the tuple */
  PyObject* part[kParts]; /* what is in it, borrowed from it */
  KnownOp ops[kMostOps];
  int op_count;
  KnownType types[kMostTypes];
  int type_count;
} Shortcut;

/* The parsed arguments. Borrowed references. */
typedef struct {
  PyObject *tensor, *name, *op, *group;
} Call;

/* 1: usual; 0: not. */
static int ReadCall(const Shortcut* self, PyObject* args, PyObject* kwargs, Call* call) {
  if (PyTuple_Size(args) != 1) return 0;
  *call = (Call){.tensor = PyTuple_GetItem(args, 0), .name = Py_None, .op = Py_None};
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (PyDict_Next(kwargs, &at, &key, &value)) {
    if (key == self->part[kNameKey])
      call->name = value;
    else if (key == self->part[kOpKey])
      call->op = value;
    else if (key == self->part[kGroupKey])
      call->group = value;
    /* native-H5: an unknown argument is left to the Python way. */
    else
      return 0;
  }
  return call->name == Py_None || PyUnicode_CheckExact(call->name);
}

/* covey_op, or -1 with an exception set. Known ones are told by identity. */
static int OpCode(Shortcut* self, PyObject* op) {
  for (int i = 0; i < self->op_count; ++i)
    if (self->ops[i].op == op) return self->ops[i].code;
  PyObject* answer = PyObject_CallFunctionObjArgs(self->part[kOpCode], op, NULL);
  if (answer == NULL) return -1;
  const int code = (int)PyLong_AsLong(answer);
  Py_DECREF(answer);
  if (code >= 0 && self->op_count < kMostOps) {
    Py_INCREF(op);
    self->ops[self->op_count++] = (KnownOp){op, code};
  }
  return code;
}

static int GroupNumber(const Shortcut* self, PyObject* group, covey_group* number) {
  *number = 0;
  if (group == NULL || group == self->part[kWorld]) return 0;
  PyObject* id = PyObject_GetAttr(group, self->part[kGroupNumber]);
  if (id == NULL) return -1;
  *number = PyLong_AsUnsignedLongLong(id);
  Py_DECREF(id);
  return PyErr_Occurred() != NULL ? -1 : 0;
}

/* Whether an answer is True; takes it over. */
static int IsTrue(PyObject* answer) {
  Py_XDECREF(answer);
  return answer == Py_True;
}

static int IsFalse(PyObject* answer) {
  Py_XDECREF(answer);
  return answer == Py_False;
}

static const ExchangeTable* TableFor(const Shortcut* self, PyObject* tensor) {
  for (int i = 0; i < self->type_count; ++i)
    if (self->types[i].type == (PyObject*)Py_TYPE(tensor)) return self->types[i].table;
  return NULL;
}

static int Address(const Shortcut* self, PyObject* tensor, void** address) {
  PyObject* answer = PyObject_CallMethodObjArgs(tensor, self->part[kAddress], NULL);
  if (answer == NULL) return 0;
  *address = PyLong_AsVoidPtr(answer);
  Py_DECREF(answer);
  return PyErr_Occurred() == NULL;
}

/* 1: filled in; 0: no tensor that can be sent as it lies, perhaps with an exception set. */
static int ReadTensor(const Shortcut* self, PyObject* object, covey_tensor* tensor,
                      int64_t* shape) {
  const ExchangeTable* table = TableFor(self, object);
  /* native-H5: a lazily negated or conjugated tensor is not what lies in its memory. */
  if (!IsFalse(PyObject_CallMethodObjArgs(object, self->part[kIsOther], NULL))) return 0;
  if (table != NULL) return ReadByTable(table, object, tensor, shape);
  if (!IsTrue(PyObject_GetAttr(object, self->part[kIsHere]))) return 0;
  if (!IsTrue(PyObject_CallMethodObjArgs(object, self->part[kIsDense], NULL))) return 0;
  PyObject* dtype = PyObject_GetAttr(object, self->part[kDtype]);
  if (dtype == NULL) return 0;
  const Py_ssize_t known = PyTuple_Size(self->part[kDtypes]);
  Py_ssize_t code = 0;
  while (code < known && PyTuple_GetItem(self->part[kDtypes], code) != dtype) ++code;
  Py_DECREF(dtype);
  void* data = NULL;
  if (code == known || !Address(self, object, &data)) return 0;
  PyObject* extents = PyObject_GetAttr(object, self->part[kShape]);
  if (extents == NULL) return 0;
  int32_t ndim = 0;
  const int read = ParseShape(extents, shape, &ndim);
  Py_DECREF(extents);
  if (read != 0) return 0;
  FillTensor(tensor, (int)code, shape, ndim, data);
  return 1;
}

/* "allreduce.NAME" in `text`, and request->name. 1, or 0 perhaps with an exception set. */
static int FillName(const Shortcut* self, PyObject* name, char* text, covey_request* request) {
  if (name == Py_None) return 1;
  const char* given;
  Py_ssize_t given_length;
  if (!PyArg_Parse(name, "s#", &given, &given_length)) return 0;
  const Py_ssize_t kind_length = PyBytes_Size(self->kind_name);
  if (kind_length + given_length >= kMostName) return 0;
  if (memchr(given, 0, (size_t)given_length) != NULL) return 0;
  memcpy(text, PyBytes_AsString(self->kind_name), (size_t)kind_length);
  memcpy(text + kind_length, given, (size_t)given_length);
  text[kind_length + given_length] = '\0';
  request->name = text;
  return 1;
}

/* Submits `request`, which borrows from `keep`: a handle, or `result` once it is over. */
static PyObject* Run(const Shortcut* self, const covey_request* request, PyObject* keep,
                     PyObject* result) {
  PyObject* handle = SubmitRequest(request, keep);
  if (handle == NULL) return NULL;
  SetResult(handle, result);
  if (!self->ends) return handle;
  const int waited = WaitForEnd(handle, -1);
  Py_DECREF(handle);
  if (waited != 0) return NULL;
  Py_INCREF(result);
  return result;
}

/* The same into `fresh` instead of in place. */
static PyObject* RunInto(const Shortcut* self, covey_request* request, PyObject* tensor,
                         PyObject* fresh) {
  covey_tensor output = *request->inputs;
  if (!Address(self, fresh, &output.data)) return NULL;
  request->outputs = &output;
  PyObject* keep = PyTuple_Pack(2, tensor, fresh);
  if (keep == NULL) return NULL;
  PyObject* answer = Run(self, request, keep, fresh);
  Py_DECREF(keep);
  return answer;
}

/* None: the Python way is to be taken. native-H5: an exception that is no Exception (of a signal)
 * goes on. */
static PyObject* Unusual(void) {
  if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
  PyErr_Clear();
  Py_RETURN_NONE;
}

static PyObject* CallOne(const Shortcut* self, PyObject* tensor, covey_request* request) {
  int64_t shape[COVEY_MAX_DIMS];
  covey_tensor input;
  if (!ReadTensor(self, tensor, &input, shape)) return Unusual();
  request->num_tensors = 1;
  request->inputs = &input;
  if (self->in_place) return Run(self, request, tensor, tensor);
  PyObject* fresh = PyObject_CallFunctionObjArgs(self->part[kEmptyLike], tensor, NULL);
  if (fresh == NULL) return NULL;
  PyObject* answer = RunInto(self, request, tensor, fresh);
  Py_DECREF(fresh);
  return answer;
}

/* 1: all of one dtype; 0 as ReadTensor. */
static int ReadTensors(const Shortcut* self, PyObject* tuple, covey_tensor* tensors, Dims* dims) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!ReadTensor(self, PyTuple_GetItem(tuple, i), &tensors[i], dims[i].shape)) return 0;
    /* native-H5: one request has one dtype. */
    if (tensors[i].dtype != tensors[0].dtype) return 0;
  }
  return 1;
}

/* The outputs of `inputs`, a list of new tensors, and their addresses. NULL with an exception. */
static PyObject* MakeOutputs(const Shortcut* self, PyObject* inputs, covey_tensor* tensors) {
  const Py_ssize_t count = PyTuple_Size(inputs);
  PyObject* outputs = PyList_New(count);
  for (Py_ssize_t i = 0; outputs != NULL && i < count; ++i) {
    PyObject* input = PyTuple_GetItem(inputs, i);
    PyObject* fresh = PyObject_CallFunctionObjArgs(self->part[kEmptyLike], input, NULL);
    if (fresh == NULL || PyList_SetItem(outputs, i, fresh) != 0 ||
        !Address(self, fresh, &tensors[i].data)) {
      Py_DECREF(outputs);
      return NULL;
    }
  }
  return outputs;
}

/* `room`: for twice as many tensors as there are. */
static PyObject* CallTuple(const Shortcut* self, PyObject* inputs, covey_tensor* room, Dims* dims,
                           covey_request* request) {
  const Py_ssize_t count = PyTuple_Size(inputs);
  if (!ReadTensors(self, inputs, room, dims)) return Unusual();
  request->num_tensors = (int32_t)count;
  request->inputs = room;
  PyObject* outputs;
  if (self->in_place) {
    outputs = PySequence_List(inputs);
  } else {
    memcpy(room + count, room, (size_t)count * sizeof(*room));
    outputs = MakeOutputs(self, inputs, room + count);
    request->outputs = room + count;
  }
  PyObject* keep = outputs == NULL ? NULL : PyTuple_Pack(2, inputs, outputs);
  PyObject* answer = keep == NULL ? NULL : Run(self, request, keep, outputs);
  Py_XDECREF(keep);
  Py_XDECREF(outputs);
  return answer;
}

static PyObject* CallList(const Shortcut* self, PyObject* list, covey_request* request) {
  if (!PyList_Check(list) && !PyTuple_Check(list)) return Unusual();
  PyObject* inputs = PySequence_Tuple(list); /* Users may change the list. */
  if (inputs == NULL) return Unusual();
  const size_t count = (size_t)PyTuple_Size(inputs);
  covey_tensor* room = malloc(2 * count * sizeof(*room) + 1);
  Dims* dims = malloc(count * sizeof(*dims) + 1);
  PyObject* answer = count == 0 || count > INT32_MAX ? Unusual()
                     : room == NULL || dims == NULL  ? PyErr_NoMemory()
                                                     : CallTuple(self, inputs, room, dims, request);
  free(room);
  free(dims);
  Py_DECREF(inputs);
  return answer;
}

static PyObject* ShortcutCall(PyObject* object, PyObject* args) {
  Shortcut* self = (Shortcut*)object;
  PyObject *given, *keywords;
  if (!PyArg_ParseTuple(args, "O!O!:call", &PyTuple_Type, &given, &PyDict_Type, &keywords))
    return NULL;
  Call call;
  char name[kMostName];
  covey_request request = COVEY_INIT(covey_request);
  if (!ReadCall(self, given, keywords, &call)) return Unusual();
  const int op = OpCode(self, call.op);
  if (op < 0 || GroupNumber(self, call.group, &request.group) != 0) return Unusual();
  if (!FillName(self, call.name, name, &request)) return Unusual();
  request.kind = self->kind;
  request.op = (covey_op)op;
  request.prescale = request.postscale = 1.0;
  request.waits = self->waits;
  return self->grouped ? CallList(self, call.tensor, &request)
                       : CallOne(self, call.tensor, &request);
}

/* ---- The type -------------------------------------------------------------------------------- */

/* Guarded by the interpreter lock. */
static PyTypeObject* shortcut_type;

const char kShortcutDoc[] =
    "shortcut(kind, kind name, grouped, in place, waits, ends, parts) -> Shortcut: see "
    "frameworks/native/shortcut.c";

PyObject* NewShortcut(PyObject* module, PyObject* args) {
  (void)module;
  int kind, grouped, in_place, waits, ends;
  PyObject *kind_name, *parts;
  if (!PyArg_ParseTuple(args, "iO!ppppO!:shortcut", &kind, &PyBytes_Type, &kind_name, &grouped,
                        &in_place, &waits, &ends, &PyTuple_Type, &parts))
    return NULL;
  if (PyTuple_Size(parts) != kParts) {
    PyErr_Format(PyExc_ValueError, "shortcut: there must be %d parts", (int)kParts);
    return NULL;
  }
  Shortcut* self = PyObject_New(Shortcut, shortcut_type);
  if (self == NULL) return NULL;
  self->kind = (covey_kind)kind;
  self->grouped = grouped;
  self->in_place = in_place;
  self->waits = waits;
  self->ends = ends;
  self->op_count = 0;
  self->kind_name = kind_name;
  self->parts = parts;
  Py_INCREF(kind_name);
  Py_INCREF(parts);
  for (int i = 0; i < kParts; ++i) self->part[i] = PyTuple_GetItem(parts, i);
  self->type_count = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(self->part[kTypes]); ++i) {
    PyObject* type = PyTuple_GetItem(self->part[kTypes], i);
    const ExchangeTable* table = ExchangeTableOf(type);
    if (table != NULL && self->type_count < kMostTypes)
      self->types[self->type_count++] = (KnownType){type, table};
  }
  return (PyObject*)self;
}

static void ShortcutDealloc(PyObject* object) {
  Shortcut* self = (Shortcut*)object;
  PyTypeObject* type = Py_TYPE(object);
  for (int i = 0; i < self->op_count; ++i) Py_DECREF(self->ops[i].op);
  Py_DECREF(self->kind_name);
  Py_DECREF(self->parts);
  PyObject_Free(object);
  Py_DECREF(type);
}

static PyMethodDef shortcut_methods[] = {
    {"call", ShortcutCall, METH_VARARGS,
     "call(args, kwargs) -> a Handle, or the result of a way that ends it; None: it\n"
     "is an unusual call and nothing was done."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shortcut_slots[] = {
    {Py_tp_new, (void*)RefuseNew},
    {Py_tp_dealloc, (void*)ShortcutDealloc},
    {Py_tp_methods, shortcut_methods},
    {Py_tp_doc, (void*)"Begins an operation that is called the usual way. Made by shortcut()."},
    {0, NULL},
};

static PyType_Spec shortcut_spec = {
    .name = "covey._native.Shortcut",
    .basicsize = sizeof(Shortcut),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = shortcut_slots,
};

int AddShortcutType(PyObject* module) {
  return (shortcut_type = AddType(module, &shortcut_spec, "Shortcut")) != NULL ? 0 : -1;
}
