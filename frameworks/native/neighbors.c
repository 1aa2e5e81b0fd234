/* Averaging with neighbors: see core/api/covey_neighbors.h. */
#include "core/api/covey_neighbors.h"

#include <stdlib.h>

#include "frameworks/native/native.h"

/* The neighbors of a request, and its arrays. */
typedef struct {
  covey_neighbors said;
  int32_t* sources;
  double* weights;
  int32_t* receivers;
} Peers;

int ParseNeighbors(PyObject* object, covey_request* request) {
  if (object == Py_None) return 0;
  double own;
  int any_sum;
  PyObject *sources, *weights, *receivers;
  if (!PyTuple_Check(object) ||
      !PyArg_ParseTuple(object, "dO!O!Op;neighbors", &own, &PyTuple_Type, &sources, &PyTuple_Type,
                        &weights, &receivers, &any_sum))
    return -1;
  const Py_ssize_t count = PyTuple_Size(sources);
  if (PyTuple_Size(weights) != count || count > INT16_MAX ||
      (receivers != Py_None &&
       (!PyTuple_Check(receivers) || PyTuple_Size(receivers) > INT16_MAX))) {
    PyErr_SetString(PyExc_ValueError, "neighbors: as many weights as sources; tuples of ranks");
    return -1;
  }
  Peers* peers = calloc(1, sizeof(*peers));
  if (peers == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  request->neighbors = &peers->said;
  peers->sources = RanksOf(sources);
  if (peers->sources != NULL) peers->weights = FractionsOf(weights);
  if (peers->weights != NULL && receivers != Py_None) peers->receivers = RanksOf(receivers);
  if (PyErr_Occurred()) return -1;
  peers->said = (covey_neighbors)COVEY_INIT(covey_neighbors);
  peers->said.own_weight = own;
  peers->said.sources = peers->sources;
  peers->said.weights = peers->weights;
  peers->said.num_sources = (int32_t)count;
  peers->said.receivers = peers->receivers;
  if (receivers != Py_None) peers->said.num_receivers = (int32_t)PyTuple_Size(receivers);
  peers->said.any_sum = any_sum;
  return 0;
}

void FreeNeighbors(covey_request* request) {
  Peers* peers = (Peers*)request->neighbors; /* its first member */
  if (peers == NULL) return;
  free(peers->sources);
  free(peers->weights);
  free(peers->receivers);
  free(peers);
  request->neighbors = NULL;
}

/* A topology, and its arrays. */
typedef struct {
  covey_topology said;
  double* matrix;
  int32_t* hosts;
} Parsed;

static void FreeParsed(Parsed* parsed) {
  free(parsed->matrix);
  free(parsed->hosts);
}

/* (name or None, size, seed, matrix or None, hosts or None, cross_every): 0, or -1 with an
 * exception set. To be freed in any case. */
static int ParseTopology(PyObject* parts, Parsed* parsed) {
  *parsed = (Parsed){COVEY_INIT(covey_topology), NULL, NULL};
  covey_topology* topology = &parsed->said;
  unsigned long long seed;
  long long every;
  PyObject *numbers, *hosts;
  if (!PyArg_ParseTuple(parts, "ziKOOL;topology", &topology->name, &topology->size, &seed, &numbers,
                        &hosts, &every))
    return -1;
  topology->seed = seed;
  topology->cross_every = every;
  if (hosts != Py_None) {
    if (!PyTuple_Check(hosts) || PyTuple_Size(hosts) != (Py_ssize_t)topology->size) {
      PyErr_Format(PyExc_ValueError, "a topology of %d ranks has the host of each of them",
                   (int)topology->size);
      return -1;
    }
    parsed->hosts = RanksOf(hosts);
    topology->hosts = parsed->hosts;
    if (parsed->hosts == NULL) return -1;
  }
  if (numbers == Py_None) return 0;
  if (!PyTuple_Check(numbers) ||
      PyTuple_Size(numbers) != (Py_ssize_t)topology->size * topology->size) {
    PyErr_SetString(PyExc_ValueError, "a topology's matrix is a tuple of size * size numbers");
    return -1;
  }
  parsed->matrix = FractionsOf(numbers);
  topology->matrix = parsed->matrix;
  return parsed->matrix == NULL ? -1 : 0;
}

PyObject* TopologyCheck(PyObject* module, PyObject* args) {
  (void)module;
  Parsed parsed;
  PyObject* answer = NULL;
  if (ParseTopology(args, &parsed) == 0) {
    covey_error error;
    ClearError(&error);
    answer = NoneOrError(covey_topology_check(&parsed.said, &error), &error);
  }
  FreeParsed(&parsed);
  return answer;
}

static size_t ReportText(const void* context, char* text, size_t capacity) {
  return covey_topology_report(context, text, capacity);
}

PyObject* TopologyReport(PyObject* module, PyObject* args) {
  (void)module;
  Parsed parsed;
  PyObject* answer = NULL;
  if (ParseTopology(args, &parsed) == 0) answer = TextOf(ReportText, &parsed.said);
  FreeParsed(&parsed);
  return answer;
}

/* A row of so many weights: (weights, receivers, adapts first). */
typedef struct {
  double* weights;
  int32_t* receivers;
  int32_t adapts_first;
} Row;

static int NewRow(int size, Row* row) {
  row->weights = calloc((size_t)size + 1, sizeof(*row->weights));
  row->receivers = calloc((size_t)size + 1, sizeof(*row->receivers));
  row->adapts_first = 0;
  if (row->weights != NULL && row->receivers != NULL) return 0;
  PyErr_NoMemory();
  return -1;
}

static PyObject* RowAnswer(int size, const Row* row) {
  PyObject* weights = PyTuple_New(size);
  PyObject* receivers = PyTuple_New(size);
  for (int i = 0; weights != NULL && receivers != NULL && i < size; ++i) {
    PyTuple_SetItem(weights, i, PyFloat_FromDouble(row->weights[i]));
    PyTuple_SetItem(receivers, i, PyLong_FromLong(row->receivers[i]));
  }
  if (weights == NULL || receivers == NULL) {
    Py_XDECREF(weights);
    Py_XDECREF(receivers);
    return NULL;
  }
  return Py_BuildValue("(NNi)", weights, receivers, (int)row->adapts_first);
}

PyObject* TopologyRow(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *parts, *answer = NULL;
  long long round;
  int index;
  if (!PyArg_ParseTuple(args, "O!Li:topology_row", &PyTuple_Type, &parts, &round, &index))
    return NULL;
  Parsed parsed;
  Row row = {NULL, NULL, 0};
  if (ParseTopology(parts, &parsed) == 0) {
    covey_error error;
    ClearError(&error);
    error.code = covey_topology_check(&parsed.said, &error);
    if (error.code != COVEY_OK) {
      RaiseError(&error);
    } else if (NewRow(parsed.said.size, &row) == 0) {
      error.code =
          covey_topology_row(&parsed.said, round, index, row.weights, row.receivers, &error);
      answer = error.code == COVEY_OK ? RowAnswer(parsed.said.size, &row) : RaiseError(&error);
    }
  }
  free(row.weights);
  free(row.receivers);
  FreeParsed(&parsed);
  return answer;
}

PyObject* MethodRow(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  unsigned long long group;
  long long version;
  if (!PyArg_ParseTuple(args, "OKL:method_row", &object, &group, &version)) return NULL;
  const covey_method* method = MethodOf(object);
  if (PyErr_Occurred()) return NULL;
  covey_error error;
  ClearError(&error);
  const int size = covey_group_ranks(NULL, group, NULL, 0);
  Row row = {NULL, NULL, 0};
  PyObject* answer = NULL;
  if (NewRow(size < 0 ? 0 : size, &row) == 0) {
    error.code = covey_method_row(NULL, method, group, version, row.weights, row.receivers,
                                  &row.adapts_first, &error);
    answer = error.code == COVEY_OK ? RowAnswer(size, &row) : RaiseError(&error);
  }
  free(row.weights);
  free(row.receivers);
  return answer;
}
