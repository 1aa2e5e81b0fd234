/* Trainings: see core/api/covey_trainer.h. Numbers stand for them; those of an earlier life are
 * known to nobody. */
#include "core/api/covey_trainer.h"

#include "frameworks/native/native.h"

enum { kSliceNs = 50 * 1000 * 1000 }; /* how long a signal waits at most */

PyObject* TrainerOpen(PyObject* module, PyObject* args) {
  (void)module;
  covey_trainer_config config = COVEY_INIT(covey_trainer_config);
  unsigned long long group;
  long long begin;
  int op;
  PyObject *method, *dtypes, *counts;
  if (!PyArg_ParseTuple(args, "KsOiLO!O!:trainer_open", &group, &config.name, &method, &op, &begin,
                        &PyTuple_Type, &dtypes, &PyTuple_Type, &counts))
    return NULL;
  config.method = MethodOf(method);
  if (PyErr_Occurred()) return NULL;
  const Py_ssize_t spans = PyTuple_Size(dtypes);
  if (PyTuple_Size(counts) != spans || spans > INT16_MAX) {
    PyErr_SetString(PyExc_ValueError, "trainer_open: as many counts as dtypes");
    return NULL;
  }
  int64_t* lengths = NumbersOf(counts);
  covey_dtype* types = lengths == NULL ? NULL : DTypesOf(dtypes);
  PyObject* answer = NULL;
  if (types != NULL) {
    config.group = group;
    config.op = (covey_op)op;
    config.begin = begin;
    config.num_spans = (int32_t)spans;
    config.dtypes = types;
    config.counts = lengths;
    covey_trainer trainer = 0;
    covey_error error;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_trainer_open(NULL, &config, &trainer, &error);
    Py_END_ALLOW_THREADS
    answer = error.code == COVEY_OK ? PyLong_FromUnsignedLongLong(trainer) : RaiseError(&error);
  }
  free(types);
  free(lengths);
  return answer;
}

PyObject* TrainerSpans(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  int count, of_model;
  if (!PyArg_ParseTuple(args, "Kip:trainer_spans", &trainer, &count, &of_model)) return NULL;
  void** spans = count >= 1 && count <= INT16_MAX ? calloc((size_t)count, sizeof(*spans)) : NULL;
  if (spans == NULL) return PyErr_NoMemory();
  covey_error error;
  ClearError(&error);
  error.code = of_model ? covey_trainer_model(NULL, trainer, spans, &error)
                        : covey_trainer_gradients(NULL, trainer, spans, &error);
  PyObject* answer = error.code == COVEY_OK ? TupleOfAddresses(spans, count) : RaiseError(&error);
  free(spans);
  return answer;
}

PyObject* TrainerSubmit(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  const char* unfit;
  if (!PyArg_ParseTuple(args, "Kz:trainer_submit", &trainer, &unfit)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_trainer_submit(NULL, trainer, unfit, &error), &error);
}

PyObject* TrainerFinish(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_finish", &trainer)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_trainer_finish(NULL, trainer, &error), &error);
}

PyObject* TrainerNext(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_next", &trainer)) return NULL;
  covey_action action = COVEY_INIT(covey_action);
  covey_error error;
  int began = 0;
  do {
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_trainer_next(NULL, trainer, kSliceNs, &action, &error);
    Py_END_ALLOW_THREADS
    if (began) TellShutdown(&error);
    began = 1;
  } while (error.code == COVEY_TIMEOUT && action.verb == COVEY_PENDING && LookAround() == 0);
  if (PyErr_Occurred()) return NULL;
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(iK)", (int)action.verb, (unsigned long long)action.number);
}

PyObject* TrainerAck(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer, number;
  int done;
  if (!PyArg_ParseTuple(args, "KKp:trainer_ack", &trainer, &number, &done)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_trainer_ack(NULL, trainer, number, done, &error), &error);
}

PyObject* TrainerPosition(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_position", &trainer)) return NULL;
  covey_position position = COVEY_INIT(covey_position);
  covey_error error;
  ClearError(&error);
  error.code = covey_trainer_position(NULL, trainer, &position, &error);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(LLi)", (long long)position.version, (long long)position.step,
                       (int)position.may_differ);
}

PyObject* TrainerRestore(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  long long version, step;
  int may_differ;
  if (!PyArg_ParseTuple(args, "K(LLi):trainer_restore", &trainer, &version, &step, &may_differ))
    return NULL;
  covey_position position = COVEY_INIT(covey_position);
  position.version = version;
  position.step = step;
  position.may_differ = may_differ;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_trainer_restore(NULL, trainer, &position, &error), &error);
}

PyObject* TrainerClose(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_close", &trainer)) return NULL;
  Py_BEGIN_ALLOW_THREADS
  covey_trainer_close(NULL, trainer);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}
