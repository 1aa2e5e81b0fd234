/* Trainings: see core/api/covey_trainer.h. Numbers stand for them; those of an earlier life are
 * known to nobody. */
#include "core/api/covey_trainer.h"

#include "frameworks/native/native.h"

enum { kSliceNs = 50 * 1000 * 1000 }; /* how long a signal waits at most */

PyObject* TrainerOpen(PyObject* module, PyObject* args) {
  (void)module;
  covey_trainer_config config = COVEY_INIT(covey_trainer_config);
  unsigned long long group;
  long long begin, end = 0;
  int op;
  config.copies = 1;
  PyObject *method, *dtypes, *counts;
  if (!PyArg_ParseTuple(args, "KsOiLO!O!ii|Liiiiii:trainer_open", &group, &config.name, &method,
                        &op, &begin, &PyTuple_Type, &dtypes, &PyTuple_Type, &counts,
                        &config.num_hypers, &config.num_state, &end, &config.keeps_gradients,
                        &config.prepares, &config.reduces, &config.vacates, &config.in_place,
                        &config.copies))
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
    config.end = end;
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

PyObject* TrainerPlace(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  PyObject* list;
  if (!PyArg_ParseTuple(args, "KO!:trainer_place", &trainer, &PyTuple_Type, &list)) return NULL;
  const Py_ssize_t count = PyTuple_Size(list);
  covey_tensor* tensors =
      count >= 1 && count <= INT16_MAX ? calloc((size_t)count, sizeof(*tensors)) : NULL;
  int64_t* shapes = tensors == NULL ? NULL : calloc((size_t)count, sizeof(*shapes));
  Py_ssize_t read = 0;
  for (; shapes != NULL && read < count; ++read) {
    int dtype;
    long long elems;
    PyObject* memory;
    if (!PyArg_ParseTuple(PyTuple_GetItem(list, read), "iLO;(dtype, count, address)", &dtype,
                          &elems, &memory))
      break;
    shapes[read] = elems;
    FillTensor(&tensors[read], dtype, &shapes[read], 1, NULL);
    if (ParseMemory(memory, &tensors[read]) != 0) break;
  }
  PyObject* answer = NULL;
  if (shapes == NULL) {
    PyErr_NoMemory();
  } else if (read == count) {
    covey_error error;
    ClearError(&error);
    answer =
        NoneOrError(covey_trainer_place(NULL, trainer, tensors, (int32_t)count, &error), &error);
  }
  free(shapes);
  free(tensors);
  return answer;
}

PyObject* TrainerSubmit(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  PyObject* tuple;
  covey_step step = COVEY_INIT(covey_step);
  if (!PyArg_ParseTuple(args, "KzO!:trainer_submit", &trainer, &step.unfit, &PyTuple_Type, &tuple))
    return NULL;
  double* hypers = FractionsOf(tuple);
  if (hypers == NULL) return NULL;
  step.hypers = hypers;
  covey_error error;
  ClearError(&error);
  PyObject* answer = NoneOrError(covey_trainer_submit(NULL, trainer, &step, &error), &error);
  free(hypers);
  return answer;
}

PyObject* TrainerFinish(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  int strict;
  if (!PyArg_ParseTuple(args, "Kp:trainer_finish", &trainer, &strict)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_trainer_finish(NULL, trainer, strict, &error), &error);
}

/* A call that takes nothing but the trainer. */
static PyObject* Call(PyObject* args, const char* format,
                      covey_code (*call)(covey_runtime*, covey_trainer, covey_error*)) {
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, format, &trainer)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(call(NULL, trainer, &error), &error);
}

PyObject* TrainerSettle(PyObject* module, PyObject* args) {
  (void)module;
  return Call(args, "K:trainer_settle", covey_trainer_settle);
}

PyObject* TrainerBeginPass(PyObject* module, PyObject* args) {
  (void)module;
  return Call(args, "K:trainer_begin_pass", covey_trainer_begin_pass);
}

PyObject* TrainerServe(PyObject* module, PyObject* args) {
  (void)module;
  return Call(args, "K:trainer_serve", covey_trainer_serve);
}

PyObject* TrainerPeek(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  int rank;
  PyObject* addresses;
  if (!PyArg_ParseTuple(args, "KiO:trainer_peek", &trainer, &rank, &addresses)) return NULL;
  if (addresses != Py_None && !PyTuple_Check(addresses)) {
    PyErr_SetString(PyExc_TypeError, "trainer_peek: addresses is a tuple, or None");
    return NULL;
  }
  void** to = addresses == Py_None ? NULL : AddressesOf(addresses);
  if (to == NULL && PyErr_Occurred()) return NULL;
  covey_seen seen = COVEY_INIT(covey_seen);
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_trainer_peek(NULL, trainer, rank, to, &seen, &error);
  Py_END_ALLOW_THREADS
  free(to);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(iLiL)", (int)seen.state, (long long)seen.step, (int)seen.superseded,
                       (long long)seen.version);
}

PyObject* TrainerShow(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  PyObject* addresses;
  if (!PyArg_ParseTuple(args, "KO!:trainer_show", &trainer, &PyTuple_Type, &addresses)) return NULL;
  void** from = AddressesOf(addresses);
  if (from == NULL) return NULL;
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_trainer_show(NULL, trainer, (const void* const*)from, &error);
  Py_END_ALLOW_THREADS
  free(from);
  return NoneOrError(error.code, &error);
}

PyObject* TrainerHide(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  if (!PyArg_ParseTuple(args, "K:trainer_hide", &trainer)) return NULL;
  covey_trainer_hide(NULL, trainer);
  Py_RETURN_NONE;
}

/* NULL, with an exception set, when there is no memory. */
static PyObject* HypersOf(const covey_action* action, int count) {
  PyObject* hypers = PyTuple_New(action->hypers == NULL ? 0 : count);
  for (int i = 0; hypers != NULL && action->hypers != NULL && i < count; ++i) {
    PyObject* number = PyFloat_FromDouble(action->hypers[i]);
    if (number == NULL || PyTuple_SetItem(hypers, i, number) != 0) Py_CLEAR(hypers);
  }
  return hypers;
}

PyObject* TrainerNext(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  int count;
  if (!PyArg_ParseTuple(args, "Ki:trainer_next", &trainer, &count)) return NULL;
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
  PyObject* hypers = HypersOf(&action, count);
  PyObject* image = hypers == NULL ? NULL : PyLong_FromVoidPtr((void*)(uintptr_t)action.image);
  if (image == NULL) {
    Py_XDECREF(hypers);
    return NULL;
  }
  return Py_BuildValue("(iKNNLid)", (int)action.verb, (unsigned long long)action.number, hypers,
                       image, (long long)action.length_bytes, (int)action.own, action.scale);
}

PyObject* TrainerGive(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  PyObject *addresses, *lengths;
  if (!PyArg_ParseTuple(args, "KO!O!:trainer_give", &trainer, &PyTuple_Type, &addresses,
                        &PyTuple_Type, &lengths))
    return NULL;
  const Py_ssize_t count = PyTuple_Size(addresses);
  if (PyTuple_Size(lengths) != count || count > INT16_MAX) {
    PyErr_SetString(PyExc_ValueError, "trainer_give: as many lengths as addresses");
    return NULL;
  }
  void** parts = AddressesOf(addresses);
  int64_t* bytes = parts == NULL ? NULL : NumbersOf(lengths);
  PyObject* answer = NULL;
  if (bytes != NULL) {
    covey_error error;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code =
        covey_trainer_give(NULL, trainer, (const void* const*)parts, bytes, (int32_t)count, &error);
    Py_END_ALLOW_THREADS
    answer = NoneOrError(error.code, &error);
  }
  free(bytes);
  free(parts);
  return answer;
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
  return Py_BuildValue("(LLiLLiLLiiiiLi)", (long long)position.version, (long long)position.step,
                       (int)position.may_differ, (long long)position.begin,
                       (long long)position.local, (int)position.has_state,
                       (long long)position.step_ns, (long long)position.published,
                       (int)position.of_all, (int)position.payload, (int)position.catches_up,
                       (int)position.is_over, (long long)position.planned, (int)position.is_open);
}

PyObject* TrainerRestore(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long trainer;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KO!:trainer_restore", &trainer, &PyTuple_Type, &tuple)) return NULL;
  long long version, step, begin, local, step_ns = 0;
  int may_differ, has_state;
  /* Restored is up to step_ns. Positions of older checkpoints end with has_state. */
  PyObject* first = PyTuple_GetSlice(tuple, 0, 7);
  if (first == NULL) return NULL;
  const int is_whole = PyArg_ParseTuple(first, "LLiLLi|L:trainer_restore", &version, &step,
                                        &may_differ, &begin, &local, &has_state, &step_ns);
  Py_DECREF(first);
  if (!is_whole) return NULL;
  covey_position position = COVEY_INIT(covey_position);
  position.version = version;
  position.step = step;
  position.may_differ = may_differ;
  position.begin = begin;
  position.local = local;
  position.has_state = has_state;
  position.step_ns = step_ns;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_trainer_restore(NULL, trainer, &position, &error), &error);
}

static size_t TrainerStatsText(const void* context, char* text, size_t capacity) {
  return covey_trainer_stats(NULL, *(const covey_trainer*)context, text, capacity);
}

PyObject* TrainerStats(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long number;
  if (!PyArg_ParseTuple(args, "K:trainer_stats", &number)) return NULL;
  const covey_trainer trainer = number;
  return TextOf(TrainerStatsText, &trainer);
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
