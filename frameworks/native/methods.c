/* Methods: the list of them, and a method's plan of a version. */
#include "core/api/covey_methods.h"
#include "frameworks/native/native.h"

static size_t Methods(const void* context, char* text, size_t capacity) {
  (void)context;
  return covey_methods(text, capacity);
}

PyObject* MethodsText(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return TextOf(Methods, NULL);
}

static const char kCapsule[] = "covey.method";

static void FreeMethod(PyObject* capsule) {
  covey_method_free(PyCapsule_GetPointer(capsule, kCapsule));
}

const covey_method* MethodOf(PyObject* object) {
  return object == Py_None ? NULL : PyCapsule_GetPointer(object, kCapsule);
}

PyObject* MethodParse(PyObject* module, PyObject* args) {
  (void)module;
  const char* text;
  if (!PyArg_ParseTuple(args, "z:method_parse", &text)) return NULL;
  covey_error error;
  ClearError(&error);
  covey_method* method = NULL;
  if (covey_method_parse(NULL, text, &method, &error) != COVEY_OK) return RaiseError(&error);
  PyObject* capsule = PyCapsule_New(method, kCapsule, FreeMethod);
  if (capsule == NULL) covey_method_free(method);
  return capsule;
}

static size_t FullText(const void* context, char* text, size_t capacity) {
  return covey_method_text(context, text, capacity);
}

PyObject* MethodText(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  if (!PyArg_ParseTuple(args, "O:method_text", &object)) return NULL;
  const covey_method* method = MethodOf(object);
  return PyErr_Occurred() ? NULL : TextOf(FullText, method);
}

typedef struct MethodStep {
  const covey_method* method;
  long long version;
} MethodStep;

static size_t TextAt(const void* context, char* text, size_t capacity) {
  const MethodStep* step = context;
  return covey_method_at(step->method, step->version, text, capacity);
}

PyObject* MethodAt(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  MethodStep step;
  if (!PyArg_ParseTuple(args, "OL:method_at", &object, &step.version)) return NULL;
  step.method = MethodOf(object);
  return PyErr_Occurred() ? NULL : TextOf(TextAt, &step);
}

PyObject* MethodPlan(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  unsigned long long group;
  long long version;
  if (!PyArg_ParseTuple(args, "OKL:method_plan", &object, &group, &version)) return NULL;
  const covey_method* method = MethodOf(object);
  if (PyErr_Occurred()) return NULL;
  covey_error error;
  ClearError(&error);
  covey_plan plan = COVEY_INIT(covey_plan);
  const covey_code code = covey_method_plan(NULL, method, group, version, &plan, &error);
  if (code != COVEY_OK) return NoneOrError(code, &error);
  return Py_BuildValue("(iiLLLLiids)", (int)plan.payload, (int)plan.admission,
                       (long long)plan.until, (long long)plan.local_steps, (long long)plan.warmup,
                       (long long)plan.max_wait_ns, (int)plan.needed, (int)plan.skips_ahead,
                       plan.clip_norm, plan.codec);
}
