/* The module covey._native: life of the runtime, groups, arena, and what can be seen of it. */
#include <stdlib.h>
#include <string.h>

#include "frameworks/native/native.h"

/* ---- Life ------------------------------------------------------------------------------------ */

static PyObject* Init(PyObject* module, PyObject* args) {
  (void)module;
  covey_config config = COVEY_INIT(covey_config);
  int rank, size, shm_fd;
  if (!PyArg_ParseTuple(args, "iiiz:init", &rank, &size, &shm_fd, &config.settings)) return NULL;
  config.rank = rank;
  config.size = size;
  config.shm_fd = shm_fd;
  covey_error error;
  ClearError(&error);
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_init(&config, &error);
  Py_END_ALLOW_THREADS
  return NoneOrError(code, &error);
}

static PyObject* Shutdown(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  if (!covey_is_initialized()) Py_RETURN_NONE;
  covey_error error;
  ClearError(&error);
  covey_code code;
  Py_BEGIN_ALLOW_THREADS
  code = covey_shutdown(&error);
  Py_END_ALLOW_THREADS
  if (code == COVEY_OK) {
    EndLife();
    /* native-H1: without a runtime nothing is in flight: all orphans are let go. */
    SweepOrphans(1);
  }
  return NoneOrError(code, &error);
}

static PyObject* IsInitialized(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(covey_is_initialized());
}

static PyObject* Place(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return Py_BuildValue("(iiii)", covey_rank(NULL), covey_size(NULL), covey_local_rank(NULL),
                       covey_local_size(NULL));
}

static PyObject* LostRanks(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  const int size = covey_size(NULL);
  int32_t* ranks = calloc((size_t)(size > 0 ? size : 1), sizeof(*ranks));
  if (ranks == NULL) return PyErr_NoMemory();
  int count = 0;
  Py_BEGIN_ALLOW_THREADS
  count = covey_lost(NULL, ranks, size);
  Py_END_ALLOW_THREADS
  const int told = count < size ? count : size;
  PyObject* tuple = PyTuple_New(told > 0 ? told : 0);
  for (int i = 0; tuple != NULL && i < told; ++i) {
    PyObject* rank = PyLong_FromLong(ranks[i]);
    if (rank == NULL || PyTuple_SetItem(tuple, i, rank) != 0) Py_CLEAR(tuple);
  }
  free(ranks);
  return tuple;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static PyObject* GroupOf(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* tuple;
  const char* order = NULL;
  if (!PyArg_ParseTuple(args, "O!|z:group_of", &PyTuple_Type, &tuple, &order)) return NULL;
  const Py_ssize_t count = PyTuple_Size(tuple);
  int32_t* ranks = malloc((size_t)(count + 1) * sizeof(*ranks));
  if (ranks == NULL) return PyErr_NoMemory();
  PyObject* answer = NULL;
  Py_ssize_t i = 0;
  for (; i < count; ++i) {
    const long rank = PyLong_AsLong(PyTuple_GetItem(tuple, i));
    if (rank == -1 && PyErr_Occurred()) break;
    /* native-H6: a rank beyond 32 bits becomes -1, which is refused, not its lower half. */
    ranks[i] = rank < INT32_MIN || rank > INT32_MAX ? -1 : (int32_t)rank;
  }
  if (i == count) {
    covey_error error;
    ClearError(&error);
    covey_group group = 0;
    covey_code code = covey_group_of(NULL, ranks, (int32_t)count, &group, &error);
    if (code == COVEY_OK && order != NULL)
      code = covey_group_apart(NULL, group, order, &group, &error);
    error.code = code;
    answer = code == COVEY_OK ? PyLong_FromUnsignedLongLong(group) : RaiseError(&error);
  }
  free(ranks);
  return answer;
}

/* ---- The arena ------------------------------------------------------------------------------- */

static PyObject* ArenaAlloc(PyObject* module, PyObject* args) {
  (void)module;
  Py_ssize_t length_bytes;
  if (!PyArg_ParseTuple(args, "n:arena_alloc", &length_bytes)) return NULL;
  if (length_bytes < 1) {
    RaiseInvalidArgument("arena_alloc: length must be positive, not %zd", length_bytes);
    return NULL;
  }
  covey_error error;
  ClearError(&error);
  void* data = NULL;
  const covey_code code = covey_arena_alloc(NULL, (size_t)length_bytes, &data, &error);
  if (code != COVEY_OK) return NoneOrError(code, &error);
  return NewMemory(data, length_bytes, covey_arena_free);
}

/* ---- Seeing what happens --------------------------------------------------------------------- */

static size_t StatsText(const void* context, char* text, size_t capacity) {
  (void)context;
  return covey_stats(NULL, text, capacity);
}

static size_t StatusText(const void* context, char* text, size_t capacity) {
  (void)context;
  return covey_status(NULL, text, capacity);
}

static size_t KnobsText(const void* context, char* text, size_t capacity) {
  (void)context;
  return covey_knobs(text, capacity);
}

PyObject* TextOf(TextFunction function, const void* context) {
  size_t capacity = 4096;
  for (;;) {
    char* text = malloc(capacity);
    if (text == NULL) return PyErr_NoMemory();
    const size_t needed = function(context, text, capacity);
    /* native-H6: a longer text is asked for again with enough room. */
    if (needed < capacity) {
      PyObject* answer = PyUnicode_DecodeUTF8(text, (Py_ssize_t)needed, "replace");
      free(text);
      return answer;
    }
    free(text);
    capacity = needed + needed / 4 + 1;
  }
}

static PyObject* BlockedNs(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLongLong(covey_blocked_ns(NULL));
}

static PyObject* Stats(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return TextOf(StatsText, NULL);
}

static PyObject* StatusOf(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return TextOf(StatusText, NULL);
}

static PyObject* Knobs(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return TextOf(KnobsText, NULL);
}

static PyObject* Asked(PyObject* module, PyObject* args) {
  (void)module;
  double seconds;
  if (!PyArg_ParseTuple(args, "d:asked", &seconds)) return NULL;
  int answer;
  Py_BEGIN_ALLOW_THREADS
  answer = covey_asked(NULL, (int64_t)(seconds * 1e9));
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(answer);
}

static PyObject* Tell(PyObject* module, PyObject* args) {
  (void)module;
  const char* where;
  if (!PyArg_ParseTuple(args, "s:tell", &where)) return NULL;
  covey_tell(NULL, where);
  Py_RETURN_NONE;
}

static PyObject* TimelineStart(PyObject* module, PyObject* args) {
  (void)module;
  const char* path;
  if (!PyArg_ParseTuple(args, "s:timeline_start", &path)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_timeline_start(NULL, path, &error), &error);
}

static PyObject* TimelineStop(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  covey_timeline_stop(NULL);
  Py_RETURN_NONE;
}

static PyObject* TimelineSpan(PyObject* module, PyObject* args) {
  (void)module;
  const char* name;
  long long begin_ns, end_ns;
  if (!PyArg_ParseTuple(args, "sLL:timeline_span", &name, &begin_ns, &end_ns)) return NULL;
  covey_timeline_span(NULL, name, begin_ns, end_ns);
  Py_RETURN_NONE;
}

static PyObject* NowNs(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLongLong(covey_now_ns());
}

static PyObject* PluginCheck(PyObject* module, PyObject* args) {
  (void)module;
  const char* name;
  if (!PyArg_ParseTuple(args, "s:plugin_check", &name)) return NULL;
  covey_error error;
  ClearError(&error);
  return NoneOrError(covey_plugin_check(name, &error), &error);
}

/* ---- The module ------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"init", Init, METH_VARARGS, "init(rank, size, shm_fd, settings): makes the runtime."},
    {"shutdown", Shutdown, METH_NOARGS, "shutdown(): ends the runtime, if there is one."},
    {"is_initialized", IsInitialized, METH_NOARGS, "is_initialized() -> bool"},
    {"place", Place, METH_NOARGS, "place() -> (rank, size, local rank, local size), or -1"},
    {"lost_ranks", LostRanks, METH_NOARGS, "lost_ranks() -> those that this rank saw die or leave"},
    {"after_fork", AfterFork, METH_NOARGS, "after_fork(): in a child, what it writes is its own."},
    {"group_of", GroupOf, METH_VARARGS, "group_of(tuple of ranks, order=None) -> group number"},
    {"submit", Submit, METH_VARARGS, kSubmitDoc},
    {"submit1", SubmitOne, METH_VARARGS, kSubmitOneDoc},
    {"codecs", CodecsText, METH_NOARGS, "codecs() -> JSON text"},
    {"codec_check", CodecCheck, METH_VARARGS, "codec_check(codec, feeds_back): raises"},
    {"codec_residual", CodecResidual, METH_VARARGS, kCodecResidualDoc},
    {"codec_bytes", CodecBytes, METH_VARARGS, "codec_bytes(codec, count) -> bytes of the codes"},
    {"codec_encode", CodecEncode, METH_VARARGS, kCodecEncodeDoc},
    {"codec_decode", CodecDecode, METH_VARARGS, kCodecDecodeDoc},
    {"copy_past_caches", CopyPastCaches, METH_VARARGS, kCopyDoc},
    {"count_not_finite", CountNotFinite, METH_VARARGS, kCountNotFiniteDoc},
    {"shortcut", NewShortcut, METH_VARARGS, kShortcutDoc},
    {"arena_alloc", ArenaAlloc, METH_VARARGS, "arena_alloc(bytes) -> Memory of the arena, zeros"},
    {"memories_alive", MemoriesAlive, METH_NOARGS, "memories_alive() -> Memory not given back yet"},
    {"stats", Stats, METH_NOARGS, "stats() -> JSON text"},
    {"blocked_ns", BlockedNs, METH_NOARGS, "blocked_ns() -> that of stats()"},
    {"status", StatusOf, METH_NOARGS, "status() -> text, one line per operation waited for"},
    {"knobs", Knobs, METH_NOARGS, "knobs() -> JSON text"},
    {"methods", MethodsText, METH_NOARGS, "methods() -> JSON text"},
    {"method_parse", MethodParse, METH_VARARGS,
     "method_parse(text or None) -> method; None: the knob's; raises InvalidArgument"},
    {"method_text", MethodText, METH_VARARGS,
     "method_text(method) -> its text, with every parameter"},
    {"method_at", MethodAt, METH_VARARGS,
     "method_at(method, version) -> the text of the method that holds then, alone"},
    {"method_plan", MethodPlan, METH_VARARGS,
     "method_plan(method, group, version) -> (payload, admission, until, local steps, warm-up,\n"
     "max_wait ns, ranks needed, whether late ranks skip ahead, clip_norm, codec)"},
    {"method_row", MethodRow, METH_VARARGS,
     "method_row(method, group, version) -> (weights, receivers, adapts first), by index"},
    {"topology_check", TopologyCheck, METH_VARARGS,
     "topology_check(name or None, size, seed, matrix or None, hosts or None, cross_every): "
     "raises InvalidArgument"},
    {"topology_report", TopologyReport, METH_VARARGS, "topology_report(as above) -> JSON text"},
    {"topology_row", TopologyRow, METH_VARARGS,
     "topology_row((as above), round, index) -> (weights, receivers, 0)"},
    {"trainer_open", TrainerOpen, METH_VARARGS,
     "trainer_open(group, name, method, op, begin, dtypes, counts, hypers, state, end = 0, keeps "
     "gradients = 0, prepares = 0, reduces = 0, vacates = 0, in place "
     "= 0) -> trainer; all call it"},
    {"trainer_spans", TrainerSpans, METH_VARARGS,
     "trainer_spans(trainer, count, of the model or of gradients) -> addresses"},
    {"trainer_place", TrainerPlace, METH_VARARGS,
     "trainer_place(trainer, ((dtype, count, address), ...)): the model, on a device"},
    {"trainer_submit", TrainerSubmit, METH_VARARGS,
     "trainer_submit(trainer, unfit or None, hypers)"},
    {"trainer_finish", TrainerFinish, METH_VARARGS, "trainer_finish(trainer, strict)"},
    {"trainer_settle", TrainerSettle, METH_VARARGS, "trainer_settle(trainer)"},
    {"trainer_begin_pass", TrainerBeginPass, METH_VARARGS, "trainer_begin_pass(trainer)"},
    {"trainer_serve", TrainerServe, METH_VARARGS, "trainer_serve(trainer)"},
    {"trainer_peek", TrainerPeek, METH_VARARGS,
     "trainer_peek(trainer, rank, addresses or None) -> (covey_seen_state, step, superseded, "
     "version)"},
    {"trainer_show", TrainerShow, METH_VARARGS,
     "trainer_show(trainer, addresses): others see the model that lies there, until the next call"},
    {"trainer_hide", TrainerHide, METH_VARARGS,
     "trainer_hide(trainer): others see nothing of this rank any more"},
    {"trainer_next", TrainerNext, METH_VARARGS,
     "trainer_next(trainer, number of hypers) -> (verb, number, hypers, image, its length, own, "
     "scale)"},
    {"trainer_give", TrainerGive, METH_VARARGS, "trainer_give(trainer, addresses, lengths)"},
    {"trainer_list", TrainerList, METH_VARARGS,
     "trainer_list(trainer, names or None, addresses, dtypes, counts, ops or None)"},
    {"trainer_listed", TrainerListed, METH_VARARGS,
     "trainer_listed(trainer) -> [(name, address, dtype, count)] of what any member has listed"},
    {"trainer_ack", TrainerAck, METH_VARARGS, "trainer_ack(trainer, number, done)"},
    {"trainer_position", TrainerPosition, METH_VARARGS,
     "trainer_position(trainer) -> (version, step, may differ, begin, local, has state, step ns, "
     "published, of all, payload, catches up, is over, planned, is open)"},
    {"trainer_restore", TrainerRestore, METH_VARARGS, "trainer_restore(trainer, position)"},
    {"trainer_state", TrainerState, METH_VARARGS,
     "trainer_state(trainer) -> [(name, address, bytes)] of what the method replicates"},
    {"trainer_arrivals", TrainerArrivals, METH_VARARGS,
     "trainer_arrivals(trainer) -> [(exchange, at_ns, needed)] since the last call"},
    {"trainer_stats", TrainerStats, METH_VARARGS,
     "trainer_stats(trainer) -> JSON text of what its versions had in them"},
    {"trainer_close", TrainerClose, METH_VARARGS, "trainer_close(trainer): its memory is gone"},
    {"asked", Asked, METH_VARARGS, "asked(seconds) -> 1 asked, 0 timeout, -1 shut down"},
    {"tell", Tell, METH_VARARGS, "tell(where): answers a peer that asked"},
    {"timeline_start", TimelineStart, METH_VARARGS, "timeline_start(path)"},
    {"timeline_stop", TimelineStop, METH_NOARGS, "timeline_stop()"},
    {"timeline_span", TimelineSpan, METH_VARARGS, "timeline_span(name, begin_ns, end_ns)"},
    {"now_ns", NowNs, METH_NOARGS, "now_ns() -> the clock of timeline_span"},
    {"plugin_check", PluginCheck, METH_VARARGS,
     "plugin_check(name): raises Unsupported, with what to do, when the plug-in cannot be used"},
    {"bench_flag", BenchFlag, METH_VARARGS, kBenchFlagDoc},
    {"bench_allreduce", BenchAllreduce, METH_VARARGS, kBenchAllreduceDoc},
    {"bench_mpi", BenchMpi, METH_VARARGS, kBenchMpiDoc},
    {"job_create", JobCreate, METH_VARARGS,
     "job_create(size) -> descriptor of a new job's shared memory, to be inherited by its ranks"},
    {"control_open", ControlOpen, METH_VARARGS,
     "control_open(address, secret, serve, nodes, node, slots, host, host id) -> Control"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "covey._native",
    .m_doc = "The C API of Covey as Python functions. Internal: use the package covey.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  if (AddHandleType(module) != 0 || AddMemoryType(module) != 0 || AddControlType(module) != 0 ||
      AddShortcutType(module) != 0 ||
      PyModule_AddStringConstant(module, "version", covey_version()) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
