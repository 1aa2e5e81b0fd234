/* Methods: which there are, and what one does at a version. */
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

PyObject* MethodCheck(PyObject* module, PyObject* args) {
  (void)module;
  const char* text;
  if (!PyArg_ParseTuple(args, "s:method_check", &text)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_method_check(text, &error), &error);
}

static size_t FullText(const void* context, char* text, size_t capacity) {
  return covey_method_text(NULL, context, text, capacity);
}

PyObject* MethodText(PyObject* module, PyObject* args) {
  (void)module;
  const char* text;
  if (!PyArg_ParseTuple(args, "z:method_text", &text)) return NULL;
  return TextOf(FullText, text);
}

typedef struct MethodStep {
  const char* text;
  long long version;
} MethodStep;

static size_t TextAt(const void* context, char* text, size_t capacity) {
  const MethodStep* step = context;
  return covey_method_at(NULL, step->text, step->version, text, capacity);
}

PyObject* MethodAt(PyObject* module, PyObject* args) {
  (void)module;
  MethodStep step;
  if (!PyArg_ParseTuple(args, "sL:method_at", &step.text, &step.version)) return NULL;
  return TextOf(TextAt, &step);
}

PyObject* MethodPlan(PyObject* module, PyObject* args) {
  (void)module;
  const char* text;
  unsigned long long group;
  long long version;
  if (!PyArg_ParseTuple(args, "sKL:method_plan", &text, &group, &version)) return NULL;
  covey_error error;
  ClearError(&error);
  covey_plan plan = COVEY_INIT(covey_plan);
  const covey_code code = covey_method_plan(NULL, text, group, version, &plan, &error);
  if (code != COVEY_OK) return NoneOrError(code, &error);
  return Py_BuildValue("(iiLLLLiids)", (int)plan.payload, (int)plan.admission,
                       (long long)plan.until, (long long)plan.local_steps, (long long)plan.warmup,
                       (long long)plan.max_wait_ns, (int)plan.needed, (int)plan.skips_ahead,
                       plan.clip_norm, plan.codec);
}
