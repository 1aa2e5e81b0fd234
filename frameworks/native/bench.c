/* Loops that `covey bench` times: without Python in them. */
#include <sched.h>
#include <stdatomic.h>

#include "frameworks/native/native.h"

/* ---- A word that two processes share --------------------------------------------------------- */

enum { kLineBytes = 128 }; /* Two cache lines: the hardware fetches them in pairs. */
enum { kSpins = 1 << 8 };  /* About 10 us: then the other one may need this core. */
static const int64_t kDeadlineNs = 10LL * 1000 * 1000 * 1000;

const char kBenchFlagDoc[] =
    "bench_flag(address, side, rounds) -> seconds for a written word to be seen by the other\n"
    "process: half of a round trip. `address`: 256 bytes of memory that the two share, zero at\n"
    "first; `side`: 0 or 1. Both call it, `rounds` equal; TimeoutError when the other does not.";

typedef _Atomic uint64_t Word;

/* Between two looks at a word that the other process writes. */
static inline void Pause(void) {
#if defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#else
  __builtin_ia32_pause();
#endif
}

/* Waits until *word is at least `value`. 0, or -1: not before the deadline. */
static int Await(const Word* word, uint64_t value) {
  const int64_t begin = covey_now_ns();
  for (;;) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (atomic_load_explicit(word, memory_order_acquire) >= value) return 0;
      Pause();
    }
    if (covey_now_ns() - begin > kDeadlineNs) return -1;
    sched_yield();
  }
}

/* Nanoseconds of `rounds` round trips after the first, which waits for the other to come. -1: it
 * does not come. */
static int64_t RoundTrips(Word* mine, const Word* theirs, int side, long rounds) {
  int64_t begin = 0;
  for (long i = 0; i <= rounds; ++i) {
    const uint64_t next = atomic_load_explicit(mine, memory_order_relaxed) + 1;
    if (side == 1 && Await(theirs, next) != 0) return -1;
    atomic_store_explicit(mine, next, memory_order_release);
    if (side == 0 && Await(theirs, next) != 0) return -1;
    if (i == 0) begin = covey_now_ns();
  }
  return covey_now_ns() - begin;
}

PyObject* BenchFlag(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long address;
  int side;
  long rounds;
  if (!PyArg_ParseTuple(args, "Kil:bench_flag", &address, &side, &rounds)) return NULL;
  if (address == 0 || side < 0 || side > 1 || rounds < 1) {
    PyErr_SetString(PyExc_ValueError, "bench_flag: address, side 0 or 1, at least one round");
    return NULL;
  }
  char* const lines = (char*)(uintptr_t)address;
  Word* const mine = (Word*)(lines + side * kLineBytes);
  const Word* const theirs = (const Word*)(lines + (1 - side) * kLineBytes);
  int64_t took_ns;
  Py_BEGIN_ALLOW_THREADS
  took_ns = RoundTrips(mine, theirs, side, rounds);
  Py_END_ALLOW_THREADS
  if (took_ns >= 0) return PyFloat_FromDouble(1e-9 * (double)took_ns / (2.0 * (double)rounds));
  PyErr_SetString(PyExc_TimeoutError, "bench_flag: the other process does not answer");
  return NULL;
}

/* ---- Blocking operations of MPI -------------------------------------------------------------- */

const char kBenchMpiDoc[] =
    "bench_mpi(function, in_place, address, count, datatype, op, comm, times): calls "
    "MPI_Allreduce,\n"
    "which is at the address `function`, `times` times. The handles are integers, as mpi4py gives\n"
    "them. RuntimeError when one fails.";

/* Handles are pointers in Open MPI and int in MPICH; either way one register each. */
typedef int (*MpiAllreduce)(void*, void*, int, uintptr_t, uintptr_t, uintptr_t);

PyObject* BenchMpi(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long function, in_place, address, datatype, op, comm;
  int count;
  long times;
  if (!PyArg_ParseTuple(args, "KKKiKKKl:bench_mpi", &function, &in_place, &address, &count,
                        &datatype, &op, &comm, &times))
    return NULL;
  const MpiAllreduce allreduce = (MpiAllreduce)(uintptr_t)function;
  void* const sent = (void*)(uintptr_t)in_place;
  void* const data = (void*)(uintptr_t)address;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS
  for (long i = 0; i < times && code == 0; ++i)
    code = allreduce(sent, data, count, datatype, op, comm);
  Py_END_ALLOW_THREADS
  if (code == 0) Py_RETURN_NONE;
  return PyErr_Format(PyExc_RuntimeError, "MPI_Allreduce returned %d", code);
}

/* ---- Blocking operations through the C API --------------------------------------------------- */

const char kBenchAllreduceDoc[] =
    "bench_allreduce(name, address, count, times): `times` sums of `count` float32 in place, each\n"
    "submitted, waited for and released before the next. Raises as wait() does.";

static covey_code SumOnce(const covey_request* request, covey_error* error) {
  covey_handle handle = 0;
  covey_code code = covey_submit(NULL, request, &handle, error);
  if (code != COVEY_OK) return code;
  code = covey_wait(NULL, handle, -1, error);
  covey_release(NULL, handle);
  return code;
}

PyObject* BenchAllreduce(PyObject* module, PyObject* args) {
  (void)module;
  covey_request request = COVEY_INIT(covey_request);
  covey_tensor tensor = COVEY_INIT(covey_tensor);
  unsigned long long address;
  long long count;
  long times;
  if (!PyArg_ParseTuple(args, "sKLl:bench_allreduce", &request.name, &address, &count, &times))
    return NULL;
  const int64_t shape[] = {count};
  tensor.dtype = COVEY_FLOAT32;
  tensor.ndim = 1;
  tensor.shape = shape;
  tensor.data = (void*)(uintptr_t)address;
  request.kind = COVEY_ALLREDUCE;
  request.op = COVEY_SUM;
  request.num_tensors = 1;
  request.inputs = &tensor;
  request.waits = 1;
  covey_error error;
  ClearError(&error);
  covey_code code = COVEY_OK;
  Py_BEGIN_ALLOW_THREADS
  for (long i = 0; i < times && code == COVEY_OK; ++i) code = SumOnce(&request, &error);
  Py_END_ALLOW_THREADS
  return NoneOrError(code, &error);
}
