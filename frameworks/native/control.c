/* For launchers: the memory of a job, and the type covey._native.Control: this process as a node of
 * a job of several launchers.
 *
 * One thread at a time, as covey_control asks; calls that wait release the interpreter lock. */
#include "core/api/covey_control.h"

#include "frameworks/native/native.h"

typedef struct {
  PyObject_HEAD
  covey_control* control; /* NULL: closed */
} Control;

/* Guarded by the interpreter lock. */
static PyTypeObject* control_type;

static covey_control* Opened(PyObject* object) {
  covey_control* control = ((Control*)object)->control;
  if (control == NULL) PyErr_SetString(PyExc_ValueError, "this node has left");
  return control;
}

PyObject* JobCreate(PyObject* module, PyObject* args) {
  (void)module;
  int size;
  if (!PyArg_ParseTuple(args, "i:job_create", &size)) return NULL;
  covey_error error;
  ClearError(&error);
  const int descriptor = covey_job_create(size, &error);
  if (descriptor < 0) return RaiseError(&error);
  return PyLong_FromLong(descriptor);
}

PyObject* ControlOpen(PyObject* module, PyObject* args) {
  (void)module;
  covey_control_config config = COVEY_INIT(covey_control_config);
  int serve, nodes, node, slots;
  const char* secret;
  Py_ssize_t secret_bytes;
  if (!PyArg_ParseTuple(args, "sy#piiiss:control_open", &config.address, &secret, &secret_bytes,
                        &serve, &nodes, &node, &slots, &config.host, &config.host_id))
    return NULL;
  config.secret = secret;
  config.secret_bytes = (size_t)secret_bytes;
  config.serve = serve;
  config.nodes = nodes;
  config.node = node;
  config.slots = slots;
  covey_error error;
  ClearError(&error);
  covey_control* control = NULL;
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_control_open(&config, &control, &error);
  Py_END_ALLOW_THREADS
  if (code != COVEY_OK) return NoneOrError(code, &error);
  PyObject* object = PyType_GenericAlloc(control_type, 0);
  if (object == NULL) {
    covey_control_close(control);
    return NULL;
  }
  ((Control*)object)->control = control;
  return object;
}

static PyObject* ControlClose(PyObject* object, PyObject* unused) {
  (void)unused;
  Control* self = (Control*)object;
  covey_control* control = self->control;
  self->control = NULL;
  Py_BEGIN_ALLOW_THREADS
  covey_control_close(control);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static void ControlDealloc(PyObject* object) {
  covey_control_close(((Control*)object)->control);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF(type);
}

static PyObject* ControlAddress(PyObject* object, PyObject* unused) {
  (void)unused;
  covey_control* control = Opened(object);
  return control == NULL ? NULL : PyUnicode_FromString(covey_control_address(control));
}

static PyObject* ControlFileno(PyObject* object, PyObject* unused) {
  (void)unused;
  covey_control* control = Opened(object);
  return control == NULL ? NULL : PyLong_FromLong(covey_control_fd(control));
}

static size_t EventText(const void* context, char* text, size_t capacity) {
  return covey_control_event((covey_control*)context, text, capacity);
}

static PyObject* ControlNext(PyObject* object, PyObject* unused) {
  (void)unused;
  covey_control* control = Opened(object);
  if (control == NULL) return NULL;
  if (!covey_control_next(control)) Py_RETURN_NONE;
  return TextOf(EventText, control);
}

static PyObject* ControlReport(PyObject* object, PyObject* args) {
  const char *kind, *text;
  covey_control* control = Opened(object);
  if (control == NULL || !PyArg_ParseTuple(args, "ss:report", &kind, &text)) return NULL;
  covey_error error;
  ClearError(&error);
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_control_report(control, kind, text, &error);
  Py_END_ALLOW_THREADS
  return NoneOrError(code, &error);
}

static PyMethodDef control_methods[] = {
    {"address", ControlAddress, METH_NOARGS, "address() -> HOST:PORT, with the port in use"},
    {"fileno", ControlFileno, METH_NOARGS, "fileno() -> readable while there are events"},
    {"next", ControlNext, METH_NOARGS, "next() -> the next event as JSON, or None"},
    {"report", ControlReport, METH_VARARGS,
     "report(kind, text): tells the rendezvous; kind is share, ready, failed or left"},
    {"close", ControlClose, METH_NOARGS,
     "close(): leaves; without a report \"left\" the others take it for a death"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot control_slots[] = {
    {Py_tp_new, (void*)RefuseNew},
    {Py_tp_dealloc, (void*)ControlDealloc},
    {Py_tp_methods, control_methods},
    {Py_tp_doc, (void*)"A node of a job of several launchers. Made by control_open() only."},
    {0, NULL},
};

static PyType_Spec control_spec = {
    .name = "covey._native.Control",
    .basicsize = sizeof(Control),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = control_slots,
};

int AddControlType(PyObject* module) {
  return (control_type = AddType(module, &control_spec, "Control")) != NULL ? 0 : -1;
}
