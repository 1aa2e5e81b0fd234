/* The C API of Covey. An adapter includes this header and its parts, core/api/covey_*.h, and
 * nothing else of core.
 *
 * Conventions, true of every function:
 *
 *  1. Every struct begins with `struct_size`; set it with COVEY_INIT(type).
 *
 *  2. Functions that can fail return covey_code (0 = COVEY_OK) and fill `*error` when `error` is
 *     not NULL. The message is one sentence that names the operation, the ranks and the values.
 *
 *  3. `runtime` may be NULL: the default runtime of this process, made by covey_init.
 *
 *  4. Ranks are global ranks, also in a group. Sizes are in elements unless a name ends in _bytes.
 *
 *  5. Memory handed in (tensor data) is borrowed from covey_submit until the operation has ended:
 *     covey_wait returned its status, covey_poll said 1, or the callback ran. Until then others
 *     that share it are refused (core/api/LIMITS.md). Shapes, names and structs are copied.
 *
 *  6. Functions may be called from any thread. No function calls back into the caller except the
 *     callback of a request, which runs on a thread of Covey or one inside covey_wait, exactly
 *     once, and must neither block nor call covey_wait, covey_shutdown or covey_runtime_free.
 *
 *  7. After fork() calls in the child return COVEY_FORKED; the parent is unaffected.
 *
 *  8. Limits are listed in core/api/LIMITS.md.
 */
#ifndef COVEY_CORE_API_COVEY_H_
#define COVEY_CORE_API_COVEY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COVEY_API __attribute__((visibility("default")))
#define COVEY_VERSION "0.1.0"
/* The version of these functions: it grows when one changes or goes, not when one is added. */
#define COVEY_API_VERSION 1
#define COVEY_INIT(type) \
  { .struct_size = sizeof(type) }

typedef struct covey_runtime covey_runtime; /* opaque */
typedef struct covey_method covey_method;   /* opaque; see core/api/covey_methods.h */

/* ---- Results ---- */

typedef enum covey_code {
  COVEY_OK = 0,
  COVEY_INVALID_ARGUMENT = 1, /* this call was wrong: nothing was submitted */
  COVEY_NOT_INITIALIZED = 2,  /* before init or after shutdown */
  COVEY_MISMATCH = 3,         /* ranks disagree about this operation: it failed on every member */
  COVEY_ABORTED = 4,          /* a member died or left: `peer_rank` names it */
  COVEY_TIMEOUT = 5,          /* not finished yet: the operation is still in flight */
  COVEY_UNSUPPORTED = 6,      /* dtype, op or device this build cannot do */
  COVEY_EXHAUSTED = 7,        /* memory or a bound of the configuration */
  COVEY_FORKED = 8,           /* called in a child of fork() */
  COVEY_INTERNAL = 9,         /* a bug in Covey: please report the message */
  COVEY_NOT_FINITE = 10       /* a member has NaN or infinite numbers: it failed on every member */
} covey_code;

typedef struct covey_error {
  uint32_t struct_size;
  covey_code code;
  int32_t peer_rank;  /* the rank that caused it; -1 when none */
  char message[2000]; /* NUL-terminated UTF-8 */
} covey_error;

/* ---- Tensors ---- */

typedef enum covey_dtype {
  COVEY_FLOAT32 = 0,
  COVEY_FLOAT64 = 1,
  COVEY_FLOAT16 = 2,
  COVEY_BFLOAT16 = 3,
  COVEY_UINT8 = 4,
  COVEY_INT8 = 5,
  COVEY_INT32 = 6,
  COVEY_INT64 = 7,
  COVEY_BOOL = 8, /* not for reductions */
  COVEY_INT16 = 9,
  COVEY_UINT16 = 10,
  COVEY_UINT32 = 11,
  COVEY_UINT64 = 12
} covey_dtype;

typedef enum covey_device_type {
  COVEY_CPU = 0,
  COVEY_CUDA = 1,
  COVEY_FAKE_DEVICE = 2
} covey_device_type;
enum { COVEY_MAX_DIMS = 16 };

/* A dense, contiguous, row-major tensor. On CUDA: the first one opens libcovey_cuda.so and the
 * device, which takes a while, and this rank uses no other device; when the operation has ended its
 * results may still be on their way, and later work on `stream` comes after them. */
typedef struct covey_tensor {
  uint32_t struct_size;
  covey_dtype dtype;
  int32_t ndim;         /* 0 = a scalar */
  const int64_t* shape; /* [ndim] */
  void* data;           /* may be NULL when a dimension is 0 */
  int32_t device_type;  /* covey_device_type */
  int32_t device_index;
  void* stream; /* the device stream (cudaStream_t) results are ordered on; NULL on the CPU */
  /* The data may be read, and the outputs written, once this event of the device (cudaEvent_t) has
   * completed. NULL: once `stream` has done what it has to do at covey_submit. */
  void* ready_event;
} covey_tensor;

/* ---- Operations ---- */

typedef enum covey_kind {
  COVEY_ALLREDUCE = 0,
  COVEY_BROADCAST = 1,
  COVEY_ALLGATHER = 2,
  COVEY_BARRIER = 3,
  COVEY_REDUCESCATTER = 4,
  COVEY_ALLTOALL = 5,
  COVEY_JOIN = 6,
  COVEY_NEIGHBOR_ALLREDUCE = 7,
  COVEY_GATHER = 8
} covey_kind;

typedef enum covey_op {
  COVEY_SUM = 0,
  COVEY_AVERAGE = 1, /* sum / group size; of integers: core/api/LIMITS.md */
  COVEY_MIN = 2,
  COVEY_MAX = 3,
  COVEY_PRODUCT = 4
} covey_op;

typedef uint64_t covey_group;  /* COVEY_WORLD or what covey_group_of (or _apart) returned */
typedef uint64_t covey_handle; /* one operation in flight; 0 is never a handle */
enum { COVEY_WORLD = 0 };
typedef void (*covey_callback)(void* context, covey_handle handle, const covey_error* error);

/* One operation over the members of a group. Every member submits the same kind, name, dtypes,
 * shapes, op, root and scales. May differ: memory (in place, arena), dimension 0 and splits of what
 * gathers (allgather, gather, alltoall), the data of a broadcast, the neighbors.
 *
 *  allreduce: outputs[i] = postscale * op over ranks of (prescale * inputs[i]); same shape. Sums
 *             are taken in rank order, one rank after the other unless COVEY_ALGORITHM is one that
 *             groups them as a tree, or NCCL does it. All tensors of one request have one dtype
 *             and travel together (a grouped allreduce).
 *
 *  broadcast: outputs[i] = inputs[i] of root; there they may be the inputs.
 *
 *  allgather: one tensor; inputs concatenated on dimension 0 in rank order; needs ndim >= 1;
 *             dimension 0 may differ per rank. The runtime allocates the result: outputs must be
 *             NULL, see covey_result.
 *
 *  gather:    as allgather, and the result is root's alone: that of the other ranks has no rows.
 *
 *  barrier:   no tensors.
 *  reducescatter: as allreduce, but dimension 0 of each tensor is split over the group in rank
 *             order as evenly as possible, the first ranks get one row more, and outputs[i] is this
 *             rank's part of result i: shape [its rows, ...]. Needs ndim >= 1 and outputs of its
 *             own, which do not overlap the inputs. Grouped as allreduce.
 *
 *  alltoall:  one tensor; the first splits[0] rows go to the group's lowest rank, the next
 *             splits[1] to the second, ...; each rank's rows are concatenated in rank order.
 *             splits NULL: dimension 0 in equal parts. Rows beyond the splits' sum stay here. Needs
 *             ndim >= 1. The runtime allocates the result as for allgather; covey_result gives the
 *             received splits too.
 *
 *  neighbor_allreduce: outputs[i] = this rank's weighted sum over neighbors' inputs[i], see
 *             core/api/covey_neighbors.h; floating-point numbers. Grouped as allreduce.
 *
 *  join:      no tensors, the world only. This rank has no more data. Ends on all ranks once every
 *             rank has joined; covey_result gives the last one. Until then this rank takes part in
 *             barriers and, with the identity element of op (0 for a sum; an average still divides
 *             by the group size), in allreduces. Other operations of the world fail everywhere.
 */
typedef struct covey_request {
  uint32_t struct_size;
  covey_kind kind;
  covey_group group;
  const char* name; /* NULL = unnamed: unnamed requests of a group are one ordered stream */
  covey_op op;
  int32_t root;
  double prescale;  /* 0 means 1 */
  double postscale; /* 0 means 1 */
  int32_t num_tensors;
  const covey_tensor* inputs;  /* [num_tensors] */
  const covey_tensor* outputs; /* [num_tensors], or NULL = in place */
  covey_callback callback;     /* NULL = none */
  void* context;
  /* 1 = covey_wait follows at once on this thread, so the engine thread need not be woken. */
  uint32_t waits;
  const int64_t* splits; /* alltoall: [num_splits] rows for each member, or NULL */
  int32_t num_splits;    /* the size of the group; 0 with NULL */
  /* allreduce and neighbor_allreduce of float32 on the CPU: how contributions are made smaller
   * before they travel, equal on all ranks: "bf16", "int8", "int8@block=512". What is decoded is
   * reduced in float32, alike on every rank: all get the same bits. NULL, "": not. */
  const char* codec;
  /* Why this rank's contribution must not be mixed with those of others, for people: the operation
   * then fails on every member with COVEY_NOT_FINITE and this text (of which 1000 bytes count);
   * inputs stay whole, and the next one works. "": the caller has looked, all is well. NULL: with
   * the knob check_nan, floating-point inputs of reductions that lie on the CPU are looked at. */
  const char* unfit;
  const struct covey_neighbors* neighbors; /* neighbor_allreduce: core/api/covey_neighbors.h */
  uint64_t codec_draw; /* its seed, if it draws: equal numbers alike; 0: by occurrence */
  /* 1 = the caller adds what covey_codec_residual says of its contribution to its next one, so each
   * travels by itself. 0: between hosts sums of the contributions of a host's ranks may travel
   * encoded instead, in fewer bytes; with more than two hosts errors are then up to about twice as
   * large. Equal on all ranks. */
  uint32_t feeds_back;
} covey_request;

/* ---- Life ---- */

/* Where this process stands in the job. Fields left at their default are read from the environment
 * that coveyrun sets (COVEY_RANK, COVEY_SIZE, COVEY_SHM_FD, ...); with neither, the job has size 1.
 * `settings` overrides knobs: "name=value" lines separated by '\n' (names as covey_knobs lists
 * them). */
typedef struct covey_config {
  uint32_t struct_size;
  int32_t rank;   /* -1 = from the environment; COVEY_INIT gives 0 with size 0 = environment too */
  int32_t size;   /* 0 = from the environment */
  int32_t shm_fd; /* the job's shared memory (memfd); 0 or -1 = from the environment */
  const char* settings;
} covey_config;

/* Makes the default runtime and waits until every rank of the job has done so (bounded by the knob
 * start_timeout). Again with equal arguments: no-op. With different ones: an error naming the
 * difference. */
COVEY_API covey_code covey_init(const covey_config* config, covey_error* error);

/* Says goodbye to the peers and ends the default runtime: operations of this rank in flight end
 * with COVEY_ABORTED. A no-op when there is none. covey_init may follow if every rank does the
 * same. */
COVEY_API covey_code covey_shutdown(covey_error* error);

COVEY_API int covey_is_initialized(void);

/* A further runtime beside the default one (several jobs in a process). */
COVEY_API covey_code covey_runtime_new(const covey_config* config, covey_runtime** runtime,
                                       covey_error* error);
COVEY_API void covey_runtime_free(covey_runtime* runtime);

/* -1 before init. The local_* values are about this host. */
COVEY_API int covey_rank(covey_runtime* runtime);
COVEY_API int covey_size(covey_runtime* runtime);
COVEY_API int covey_local_rank(covey_runtime* runtime);
COVEY_API int covey_local_size(covey_runtime* runtime);

/* ---- Groups ---- */

/* The group of `ranks` ([count], distinct, each in 0..size-1, in any order): a local call, which
 * non-members need not make. The same ranks give the same group on every rank. */
COVEY_API covey_code covey_group_of(covey_runtime* runtime, const int32_t* ranks, int32_t count,
                                    covey_group* group, covey_error* error);

/* Number of members; those in ascending order into ranks[0..capacity). -1: no such group. */
COVEY_API int covey_group_ranks(covey_runtime* runtime, covey_group group, int32_t* ranks,
                                int32_t capacity);

/* The members of `group` once more, with names and an unnamed stream of their own: the same group
 * for the same `order`, a text that is not empty. */
COVEY_API covey_code covey_group_apart(covey_runtime* runtime, covey_group group, const char* order,
                                       covey_group* apart, covey_error* error);

/* ---- Submitting and waiting ---- */

/* Hands one operation to the runtime. On success *handle must be released with covey_release
 * exactly once (also when a callback was given). Never blocks. */
COVEY_API covey_code covey_submit(covey_runtime* runtime, const covey_request* request,
                                  covey_handle* handle, covey_error* error);

/* Waits until the operation has ended and returns its status; COVEY_TIMEOUT after timeout_ns
 * (negative: no limit) leaves it in flight. Threads that wait drive the runtime themselves; several
 * may wait for one handle, also while another releases it. */
COVEY_API covey_code covey_wait(covey_runtime* runtime, covey_handle handle, int64_t timeout_ns,
                                covey_error* error);

/* 1 = ended (covey_wait returns at once), 0 = in flight, -1 = unknown handle. */
COVEY_API int covey_poll(covey_runtime* runtime, covey_handle handle);

/* Of an ended join: rows[0] = the last rank that joined; `result` may be NULL. Result `index` (0)
 * of an ended allgather, gather or alltoall: dtype, shape and data point into memory owned by the
 * handle, on the host wherever the input was, valid until covey_release or covey_shutdown. `rows`
 * (may be NULL, [group size]) gets how many rows came from each rank: of an allgather, and on the
 * root of a gather, its dimension 0; of an alltoall its split for this rank. */
COVEY_API covey_code covey_result(covey_runtime* runtime, covey_handle handle, int32_t index,
                                  covey_tensor* result, int64_t* rows, covey_error* error);

/* Forgets the handle. An operation still in flight goes on; its memory stays borrowed until it
 * ends, and covey_release of an operation in flight therefore waits for its end. */
COVEY_API void covey_release(covey_runtime* runtime, covey_handle handle);

/* 1 = the operation has ended with COVEY_OK, and its handle is now released; 0 = it has not. */
COVEY_API int covey_release_if_done(covey_runtime* runtime, covey_handle handle);

/* As covey_result, and the memory is the caller's from now on: result->data (never NULL) outlives
 * the handle and the runtime, until covey_free. result->shape stays the handle's. Once per result;
 * afterwards there is none for covey_result either. */
COVEY_API covey_code covey_result_take(covey_runtime* runtime, covey_handle handle, int32_t index,
                                       covey_tensor* result, int64_t* rows, covey_error* error);
COVEY_API void covey_free(void* data); /* a result of covey_result_take; NULL: nothing */

/* ---- The arena ---- */

/* Memory every rank of this host can reach directly: tensors in it are reduced without a copy.
 * 64-byte aligned, zero-filled. Valid until covey_arena_free, also after shutdown. */
COVEY_API covey_code covey_arena_alloc(covey_runtime* runtime, size_t length_bytes, void** data,
                                       covey_error* error);
COVEY_API void covey_arena_free(void* data);

/* In a child of fork(), before it touches such memory: pages that it writes there are its own from
 * then on. Other pages are the parent's of now, not of the fork. Elsewhere: nothing. */
COVEY_API void covey_after_fork(covey_runtime* runtime);

/* ---- Seeing what happens ---- */

/* Counters as one JSON object (keys: core/README.md). Writes at most `capacity` bytes with the NUL
 * and returns the length needed without it. */
COVEY_API size_t covey_stats(covey_runtime* runtime, char* json, size_t capacity);

/* The operations that this rank waits for, one a line (name, kind, since when, peers that have not
 * begun). The buffer as for covey_stats. */
COVEY_API size_t covey_status(covey_runtime* runtime, char* text, size_t capacity);

/* Blocks until a peer that waits for this rank asks where it is: 1; 0 after timeout_ns; -1 = shut
 * down. The adapter's watchdog answers with covey_tell ("train.py:42 in step"). */
COVEY_API int covey_asked(covey_runtime* runtime, int64_t timeout_ns);
COVEY_API void covey_tell(covey_runtime* runtime, const char* where);

/* Starts or stops the trace of this rank: one Chrome/Perfetto JSON file, valid at every moment. */
COVEY_API covey_code covey_timeline_start(covey_runtime* runtime, const char* path,
                                          covey_error* error);
COVEY_API void covey_timeline_stop(covey_runtime* runtime);
/* Adds a span of the caller's own (e.g. "backward"); times from covey_now_ns. */
COVEY_API void covey_timeline_span(covey_runtime* runtime, const char* name, int64_t begin_ns,
                                   int64_t end_ns);
COVEY_API int64_t covey_now_ns(void);

/* All knobs as a JSON array of {name, unit, default, minimum, maximum, agreed, help, value}. The
 * values are those of the default runtime, before there is one those of the environment. Same
 * buffer rule as covey_stats. */
COVEY_API size_t covey_knobs(char* json, size_t capacity);

COVEY_API const char* covey_version(void);
/* The COVEY_API_VERSION that the library was built with. */
COVEY_API int covey_api_version(void);
COVEY_API const char* covey_dtype_name(covey_dtype dtype);

/* Whether the plug-in `name` (mpi, ucx, cuda, ...: libcovey_<name>.so) is there and fits; the error
 * says what was looked for where, and what to do. It is opened by this. Needs no runtime. */
COVEY_API covey_code covey_plugin_check(const char* name, covey_error* error);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_H_ */
