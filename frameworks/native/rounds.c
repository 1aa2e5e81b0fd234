/* Rounds: see core/api/covey_rounds.h. Numbers stand for them; those of an earlier life are
 * unknown. */
#include "frameworks/native/native.h"

#include "core/api/covey_rounds.h"

enum { kSliceNs = 50 * 1000 * 1000 }; /* how long a signal waits at most */
enum { kMostSpans = 1 << 16, kMostHypers = 4096 };

/* As AddressesOf; *spans is NULL where the tuple is empty. */
static void** SpansOf(PyObject* tuple, void* const** spans) {
  void** addresses = AddressesOf(tuple);
  *spans = PyTuple_Size(tuple) > 0 ? addresses : NULL;
  return addresses;
}

PyObject* RoundsOpen(PyObject* module, PyObject* args) {
  (void)module;
  covey_rounds_config config = COVEY_INIT(covey_rounds_config);
  unsigned long long group;
  long long begin;
  int op;
  PyObject *method, *dtypes, *counts;
  if (!PyArg_ParseTuple(args, "KsOLiiO!O!:rounds_open", &group, &config.name, &method, &begin, &op,
                        &config.num_hypers, &PyTuple_Type, &dtypes, &PyTuple_Type, &counts))
    return NULL;
  config.method = MethodOf(method);
  if (PyErr_Occurred()) return NULL;
  const Py_ssize_t spans = PyTuple_Size(dtypes);
  if (PyTuple_Size(counts) != spans || spans > kMostSpans) {
    PyErr_SetString(PyExc_ValueError, "rounds_open: as many counts as dtypes");
    return NULL;
  }
  int64_t* lengths = NumbersOf(counts);
  covey_dtype* types = lengths == NULL ? NULL : DTypesOf(dtypes);
  PyObject* answer = NULL;
  if (types != NULL) {
    config.group = group;
    config.begin = begin;
    config.op = (covey_op)op;
    config.num_spans = (int32_t)spans;
    config.dtypes = types;
    config.counts = lengths;
    covey_rounds rounds = 0;
    covey_error error;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_rounds_open(NULL, &config, &rounds, &error);
    Py_END_ALLOW_THREADS
    answer = error.code == COVEY_OK ? PyLong_FromUnsignedLongLong(rounds) : RaiseError(&error);
  }
  free(types);
  free(lengths);
  return answer;
}

/* [count] NULLs, to be freed; NULL: an exception. */
static void** NewSpans(int count) {
  if (count >= 1 && count <= kMostSpans) {
    void** spans = calloc((size_t)count, sizeof(*spans));
    if (spans == NULL) PyErr_NoMemory();
    return spans;
  }
  PyErr_SetString(PyExc_ValueError, "rounds: a number of spans");
  return NULL;
}

PyObject* RoundsSpans(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  int count;
  if (!PyArg_ParseTuple(args, "Ki:rounds_spans", &rounds, &count)) return NULL;
  void** spans = NewSpans(count);
  if (spans == NULL) return NULL;
  covey_error error;
  ClearError(&error);
  error.code = covey_rounds_spans(NULL, rounds, spans, &error);
  PyObject* answer = error.code == COVEY_OK ? TupleOfAddresses(spans, count) : RaiseError(&error);
  free(spans);
  return answer;
}

const char kRoundsHoldDoc[] =
    "rounds_hold(rounds, version, count) -> (addresses of the spans in place, pages of them that\n"
    "this rank had written); version 0: holds none; raises Exhausted, Unsupported";

PyObject* RoundsHold(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long version;
  int count;
  if (!PyArg_ParseTuple(args, "KLi:rounds_hold", &rounds, &version, &count)) return NULL;
  void** spans = NewSpans(count);
  if (spans == NULL) return NULL;
  int64_t written = 0;
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_rounds_hold(NULL, rounds, version, spans, &written, &error);
  Py_END_ALLOW_THREADS
  PyObject* answer = NULL;
  if (error.code != COVEY_OK)
    RaiseError(&error);
  else
    answer = Py_BuildValue("(NL)", TupleOfAddresses(spans, count), (long long)written);
  free(spans);
  return answer;
}

PyObject* RoundsWithdraw(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  int count;
  if (!PyArg_ParseTuple(args, "Ki:rounds_withdraw", &rounds, &count)) return NULL;
  void** spans = NewSpans(count);
  if (spans == NULL) return NULL;
  covey_error error;
  ClearError(&error);
  error.code = covey_rounds_withdraw(NULL, rounds, (const void**)spans, &error);
  PyObject* answer = error.code == COVEY_OK ? TupleOfAddresses(spans, spans[0] == NULL ? 0 : count)
                                            : RaiseError(&error);
  free(spans);
  return answer;
}

PyObject* RoundsPublish(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KO:rounds_publish", &rounds, &tuple)) return NULL;
  if (tuple != Py_None && !PyTuple_Check(tuple)) {
    PyErr_SetString(PyExc_TypeError, "hypers must be a tuple or None");
    return NULL;
  }
  double* hypers = tuple == Py_None ? NULL : FractionsOf(tuple);
  if (hypers == NULL && tuple != Py_None) return NULL;
  int64_t step = 0;
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = hypers == NULL ? covey_rounds_skip(NULL, rounds, &step, &error)
                              : covey_rounds_publish(NULL, rounds, hypers, &step, &error);
  Py_END_ALLOW_THREADS
  free(hypers);
  return error.code == COVEY_OK ? PyLong_FromLongLong(step) : RaiseError(&error);
}

/* Waits in slices for `version`, or for the flush when it is negative. */
static PyObject* WaitFor(unsigned long long rounds, long long version, double seconds) {
  const int64_t deadline = seconds < 0 ? INT64_MAX : covey_now_ns() + (int64_t)(seconds * 1e9);
  covey_error error;
  for (int began = 0;; began = 1) {
    const int64_t left = deadline - covey_now_ns();
    const int64_t slice = left > kSliceNs ? kSliceNs : left < 0 ? 0 : left;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = version < 0 ? covey_rounds_finish(NULL, rounds, slice, &error)
                             : covey_rounds_wait(NULL, rounds, version, slice, &error);
    Py_END_ALLOW_THREADS
    if (began) TellShutdown(&error);
    if (error.code == COVEY_OK) Py_RETURN_NONE;
    /* With a peer it is max_wait that is over. */
    if (error.code != COVEY_TIMEOUT || error.peer_rank >= 0 || covey_now_ns() >= deadline)
      return RaiseError(&error);
    if (LookAround() != 0) return NULL;
  }
}

PyObject* RoundsWait(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long version;
  double seconds = -1;
  if (!PyArg_ParseTuple(args, "KL|d:rounds_wait", &rounds, &version, &seconds)) return NULL;
  return WaitFor(rounds, version < 0 ? 0 : version, seconds);
}

PyObject* RoundsFinish(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  double seconds = -1;
  if (!PyArg_ParseTuple(args, "K|d:rounds_finish", &rounds, &seconds)) return NULL;
  return WaitFor(rounds, -1, seconds);
}

PyObject* RoundsExecuted(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  if (!PyArg_ParseTuple(args, "K:rounds_executed", &rounds)) return NULL;
  return PyLong_FromLongLong(covey_rounds_executed(NULL, rounds));
}

PyObject* RoundsEnded(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  if (!PyArg_ParseTuple(args, "K:rounds_ended", &rounds)) return NULL;
  int64_t at_ns = 0;
  const int64_t version = covey_rounds_ended(NULL, rounds, &at_ns);
  return Py_BuildValue("(LL)", (long long)version, (long long)at_ns);
}

static PyObject* RecordOf(const covey_round_record* record, int size, int hypers) {
  PyObject* members = PyTuple_New(size);
  PyObject* overdue = PyTuple_New(size);
  PyObject* numbers = PyTuple_New(hypers);
  for (int i = 0; members != NULL && i < size; ++i) {
    PyObject* pair = Py_BuildValue("(LL)", (long long)record->first[i], (long long)record->last[i]);
    if (pair == NULL || PyTuple_SetItem(members, i, pair) != 0) Py_CLEAR(members);
  }
  for (int i = 0; overdue != NULL && i < size; ++i) {
    PyObject* number = PyLong_FromLongLong((long long)record->overdue[i]);
    if (number == NULL || PyTuple_SetItem(overdue, i, number) != 0) Py_CLEAR(overdue);
  }
  for (int i = 0; numbers != NULL && i < hypers; ++i) {
    PyObject* number = PyFloat_FromDouble(record->hypers[i]);
    if (number == NULL || PyTuple_SetItem(numbers, i, number) != 0) Py_CLEAR(numbers);
  }
  if (members != NULL && overdue != NULL && numbers != NULL)
    return Py_BuildValue("(iiNNN)", (int)record->divisor, (int)record->leader, members, numbers,
                         overdue);
  Py_XDECREF(members);
  Py_XDECREF(overdue);
  Py_XDECREF(numbers);
  return NULL;
}

PyObject* RoundsExpect(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KO!:rounds_expect", &rounds, &PyTuple_Type, &tuple)) return NULL;
  void* const* spans;
  void** addresses = SpansOf(tuple, &spans);
  if (addresses == NULL) return NULL;
  covey_error error;
  ClearError(&error);
  error.code = covey_rounds_expect(NULL, rounds, spans, &error);
  free(addresses);
  return NoneOrError(error.code, &error);
}

PyObject* RoundsRead(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long version;
  PyObject* tuple;
  int size, hypers;
  if (!PyArg_ParseTuple(args, "KLO!ii:rounds_read", &rounds, &version, &PyTuple_Type, &tuple, &size,
                        &hypers))
    return NULL;
  if (size < 1 || hypers < 0 || hypers > kMostHypers) {
    PyErr_SetString(PyExc_ValueError, "rounds_read: the group's size, and the hyper-parameters");
    return NULL;
  }
  void* const* spans;
  void** addresses = SpansOf(tuple, &spans);
  int64_t* steps = addresses == NULL ? NULL : calloc((size_t)size * 3, sizeof(*steps));
  double* numbers = steps == NULL ? NULL : calloc((size_t)hypers + 1, sizeof(*numbers));
  PyObject* answer = NULL;
  if (numbers != NULL) {
    covey_round_record record = COVEY_INIT(covey_round_record);
    record.first = steps;
    record.last = steps + size;
    record.overdue = steps + 2 * size;
    record.hypers = numbers;
    covey_error error;
    ClearError(&error);
    Py_BEGIN_ALLOW_THREADS
    error.code = covey_rounds_read(NULL, rounds, version, spans, &record, &error);
    Py_END_ALLOW_THREADS
    answer = error.code == COVEY_OK ? RecordOf(&record, size, hypers) : RaiseError(&error);
  } else if (addresses != NULL) {
    PyErr_NoMemory();
  }
  free(numbers);
  free(steps);
  free(addresses);
  return answer;
}

PyObject* RoundsMerge(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long version;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KLO!:rounds_merge", &rounds, &version, &PyTuple_Type, &tuple))
    return NULL;
  void* const* spans;
  void** addresses = SpansOf(tuple, &spans);
  if (addresses == NULL) return NULL;
  covey_round_merge merge = COVEY_INIT(covey_round_merge);
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_rounds_merge(NULL, rounds, version, spans, &merge, &error);
  Py_END_ALLOW_THREADS
  free(addresses);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(LiiLii)", (long long)merge.version, (int)merge.count, (int)merge.late,
                       (long long)merge.step, (int)merge.of_all, (int)merge.kept);
}

PyObject* RoundsOfAll(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long version;
  if (!PyArg_ParseTuple(args, "KL:rounds_of_all", &rounds, &version)) return NULL;
  return PyBool_FromLong(covey_rounds_of_all(NULL, rounds, version));
}

PyObject* RoundsLook(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  int rank;
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "KiO!:rounds_look", &rounds, &rank, &PyTuple_Type, &tuple))
    return NULL;
  void** to = AddressesOf(tuple);
  if (to == NULL) return NULL;
  covey_round_look look = COVEY_INIT(covey_round_look);
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = covey_rounds_look(NULL, rounds, rank, to, &look, &error);
  Py_END_ALLOW_THREADS
  free(to);
  if (error.code != COVEY_OK) return RaiseError(&error);
  return Py_BuildValue("(iLi)", (int)look.whole, (long long)look.step, (int)look.passed_by);
}

static PyObject* Do(PyObject* args, const char* format,
                    covey_code (*function)(covey_runtime*, covey_rounds, covey_error*)) {
  unsigned long long rounds;
  if (!PyArg_ParseTuple(args, format, &rounds)) return NULL;
  covey_error error;
  ClearError(&error);
  Py_BEGIN_ALLOW_THREADS
  error.code = function(NULL, rounds, &error);
  Py_END_ALLOW_THREADS
  return error.code == COVEY_OK ? (Py_INCREF(Py_None), Py_None) : RaiseError(&error);
}

PyObject* RoundsBegin(PyObject* module, PyObject* args) {
  (void)module;
  return Do(args, "K:rounds_begin", &covey_rounds_begin);
}

PyObject* RoundsGoOn(PyObject* module, PyObject* args) {
  (void)module;
  return Do(args, "K:rounds_go_on", &covey_rounds_go_on);
}

PyObject* RoundsPace(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  if (!PyArg_ParseTuple(args, "K:rounds_pace", &rounds)) return NULL;
  return PyLong_FromLongLong(covey_rounds_pace(NULL, rounds));
}

PyObject* RoundsAssume(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  long long step_ns;
  if (!PyArg_ParseTuple(args, "KL:rounds_assume", &rounds, &step_ns)) return NULL;
  covey_rounds_assume(NULL, rounds, step_ns);
  Py_RETURN_NONE;
}

PyObject* RoundsClose(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long rounds;
  if (!PyArg_ParseTuple(args, "K:rounds_close", &rounds)) return NULL;
  covey_rounds_close(NULL, rounds);
  Py_RETURN_NONE;
}
