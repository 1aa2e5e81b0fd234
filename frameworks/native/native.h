/* Shared declarations of the extension module `covey._native`.
 *
 * The module is a thin skin over core/api/covey.h: it turns Python arguments into the structs of
 * the C API and the C API's errors into exceptions, nothing else. It knows no framework; tensors
 * arrive as (address, dtype code, shape). Everything here runs with the interpreter lock held
 * except the calls that can block (init, shutdown, wait, asked), which release it.
 *
 * Built against Python's limited API of 3.9, so one binary serves every later Python.
 */
#ifndef COVEY_FRAMEWORKS_NATIVE_NATIVE_H_
#define COVEY_FRAMEWORKS_NATIVE_NATIVE_H_

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/api/covey.h"
#include "core/api/covey_waiting.h"

/* Initialises an error without clearing its 2,000-byte message. */
void ClearError(covey_error* error);

/* Sets the exception of covey.errors that belongs to error->code. Always returns NULL. */
PyObject* RaiseError(const covey_error* error);

/* covey.InvalidArgument, with a text as of printf. */
void RaiseInvalidArgument(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* Makes the type of `spec`, which Python cannot instantiate (tp_new: RefuseNew), and adds it to
 * `module`. It lives as long as the process. NULL with an exception set. */
PyTypeObject* AddType(PyObject* module, PyType_Spec* spec, const char* name);
PyObject* RefuseNew(PyTypeObject* type, PyObject* args, PyObject* kwargs);

/* The text of a function with covey_stats' buffer rule: asks again while it grows. NULL with an
 * exception set. */
typedef size_t (*TextFunction)(const void* context, char* text, size_t capacity);
PyObject* TextOf(TextFunction function, const void* context);

/* None, or NULL with the exception of a failed call. */
PyObject* NoneOrError(covey_code code, covey_error* error);

/* Of an error in a wait that had begun: another thread has shut down, which is COVEY_ABORTED. */
void TellShutdown(covey_error* error);

/* For a waiting thread, between two slices of waiting: Python's signals, and requests of other
 * ranks meanwhile (State.help of covey/state.py). 0, or -1 with an exception set. */
int LookAround(void);

/* handle.c ------------------------------------------------------------------------------------- */

/* Makes the Handle type and adds it to `module`. 0, or -1 with an exception set. */
int AddHandleType(PyObject* module);

/* A Handle that owns `handle` and a reference to `keep` (the tensors whose memory is borrowed).
 * NULL with an exception set; the operation then goes on as an orphan, `keep` stays alive. */
PyObject* NewHandle(covey_handle handle, PyObject* keep);

/* The value that wait() is to return, of a Handle that has none yet. */
void SetResult(PyObject* handle, PyObject* result);

/* dropped.c ------------------------------------------------------------------------------------ */

/* Keeps the reference to `keep` until the operation has ended. */
void AddOrphan(covey_handle handle, PyObject* keep);

/* Lets go of dropped operations that have ended. `all` says that every one has (after shutdown). */
void SweepOrphans(int all);

/* native-H7: what is known of the operation that was submitted last. A wait for it, or a look that
 * finds it ended, is seen. RefuseRepeated: 0, or -1 with an exception set. */
void NoteSubmitted(const covey_request* request, covey_handle handle);
void NoteSeen(covey_handle handle);
void NoteDropped(covey_handle handle);
int RefuseRepeated(const covey_request* request);

/* Waits as Handle.wait(timeout) does; limit_ns < 0: no limit. 0, or -1 with an exception set. */
int WaitForEnd(PyObject* handle, int64_t limit_ns);

/* From now on handles belong to a next runtime: those made before are no longer released. */
void EndLife(void);

/* memory.c ------------------------------------------------------------------------------------- */

int AddMemoryType(PyObject* module);

/* A Memory that owns `data`, to be given back with `give_back`. NULL with an exception set; `data`
 * was then given back. */
PyObject* NewMemory(void* data, Py_ssize_t length_bytes, void (*give_back)(void* data));

PyObject* MemoriesAlive(PyObject* module, PyObject* unused);
PyObject* AfterFork(PyObject* module, PyObject* unused);

/* control.c ------------------------------------------------------------------------------------ */

int AddControlType(PyObject* module);
PyObject* ControlOpen(PyObject* module, PyObject* args);
PyObject* JobCreate(PyObject* module, PyObject* args);

/* submit.c ------------------------------------------------------------------------------------- */

/* Room for one tensor's shape, so that a request needs no allocation per tensor. */
typedef struct {
  int64_t shape[COVEY_MAX_DIMS];
} Dims;

/* Where a tensor's memory lies: an address, the memory of a bytes or bytearray object, or on CUDA
 * (address, device number, stream). 0, or -1 with an exception set. */
int ParseMemory(PyObject* object, covey_tensor* tensor);
/* Fills `shape` from a tuple. 0, or -1 with an exception set. */
int ParseShape(PyObject* object, int64_t* shape, int32_t* ndim);
void FillTensor(covey_tensor* tensor, int dtype, const int64_t* shape, int32_t ndim, void* data);

/* A Handle that keeps `keep` until the operation has ended; NULL with an exception set. */
PyObject* SubmitRequest(const covey_request* request, PyObject* keep);

PyObject* Submit(PyObject* module, PyObject* args);
PyObject* SubmitOne(PyObject* module, PyObject* args);

/* values.c ------------------------------------------------------------------------------------- */

PyObject* CountNotFinite(PyObject* module, PyObject* args);
PyObject* CopyPastCaches(PyObject* module, PyObject* args);
PyObject* CodecsText(PyObject* module, PyObject* unused);
PyObject* CodecCheck(PyObject* module, PyObject* args);
PyObject* CodecResidual(PyObject* module, PyObject* args);
PyObject* CodecBytes(PyObject* module, PyObject* args);
PyObject* CodecEncode(PyObject* module, PyObject* args);
PyObject* CodecDecode(PyObject* module, PyObject* args);

/* neighbors.c ---------------------------------------------------------------------------------- */

/* Fills request->neighbors from a tuple; None: nothing. 0, or -1 with an exception set. In both
 * cases FreeNeighbors follows. */
int ParseNeighbors(PyObject* object, covey_request* request);
void FreeNeighbors(covey_request* request);

PyObject* TopologyCheck(PyObject* module, PyObject* args);
PyObject* TopologyReport(PyObject* module, PyObject* args);
PyObject* TopologyRow(PyObject* module, PyObject* args);
PyObject* MethodRow(PyObject* module, PyObject* args);

/* dlpack.c ------------------------------------------------------------------------------------- */

/* How tensors of a type are read; NULL: not this way. No exception is set. */
typedef struct ExchangeTable ExchangeTable;
const ExchangeTable* ExchangeTableOf(PyObject* type);

/* 1: filled in; 0: no tensor that can be sent as it lies, perhaps with an exception set. */
int ReadByTable(const ExchangeTable* table, PyObject* object, covey_tensor* tensor, int64_t* shape);

/* shortcut.c ----------------------------------------------------------------------------------- */

int AddShortcutType(PyObject* module);
PyObject* NewShortcut(PyObject* module, PyObject* args);

/* methods.c ------------------------------------------------------------------------------------ */

PyObject* MethodsText(PyObject* module, PyObject* unused);
PyObject* MethodParse(PyObject* module, PyObject* args);
PyObject* MethodText(PyObject* module, PyObject* args);
PyObject* MethodAt(PyObject* module, PyObject* args);
PyObject* MethodPlan(PyObject* module, PyObject* args);
/* NULL for None, and with an exception set where `object` is no method. */
const covey_method* MethodOf(PyObject* object);

/* bench.c -------------------------------------------------------------------------------------- */

PyObject* BenchFlag(PyObject* module, PyObject* args);
PyObject* BenchAllreduce(PyObject* module, PyObject* args);
PyObject* BenchMpi(PyObject* module, PyObject* args);

/* tuples.c ------------------------------------------------------------------------------------- */

/* As arrays of malloc's, with one element more; NULL with an exception set. */
int64_t* NumbersOf(PyObject* tuple);
int32_t* RanksOf(PyObject* tuple);
double* FractionsOf(PyObject* tuple);
void** AddressesOf(PyObject* tuple);
covey_dtype* DTypesOf(PyObject* tuple);
/* The other way round; NULL with an exception set. */
PyObject* TupleOfAddresses(void* const* addresses, int count);

/* trainer.c ------------------------------------------------------------------------------------ */

PyObject* TrainerOpen(PyObject* module, PyObject* args);
PyObject* TrainerSpans(PyObject* module, PyObject* args);
PyObject* TrainerSubmit(PyObject* module, PyObject* args);
PyObject* TrainerFinish(PyObject* module, PyObject* args);
PyObject* TrainerSettle(PyObject* module, PyObject* args);
PyObject* TrainerBeginPass(PyObject* module, PyObject* args);
PyObject* TrainerServe(PyObject* module, PyObject* args);
PyObject* TrainerPeek(PyObject* module, PyObject* args);
PyObject* TrainerShow(PyObject* module, PyObject* args);
PyObject* TrainerHide(PyObject* module, PyObject* args);
PyObject* TrainerPlace(PyObject* module, PyObject* args);
PyObject* TrainerNext(PyObject* module, PyObject* args);
PyObject* TrainerGive(PyObject* module, PyObject* args);
PyObject* TrainerList(PyObject* module, PyObject* args);
PyObject* TrainerListed(PyObject* module, PyObject* args);
PyObject* TrainerAck(PyObject* module, PyObject* args);
PyObject* TrainerPosition(PyObject* module, PyObject* args);
PyObject* TrainerRestore(PyObject* module, PyObject* args);
PyObject* TrainerState(PyObject* module, PyObject* args);
PyObject* TrainerStats(PyObject* module, PyObject* args);
PyObject* TrainerArrivals(PyObject* module, PyObject* args);
PyObject* TrainerClose(PyObject* module, PyObject* args);

extern const char kSubmitDoc[];
extern const char kSubmitOneDoc[];
extern const char kShortcutDoc[];
extern const char kBenchFlagDoc[];
extern const char kBenchAllreduceDoc[];
extern const char kCountNotFiniteDoc[];
extern const char kCodecDecodeDoc[];
extern const char kCodecEncodeDoc[];
extern const char kCodecResidualDoc[];
extern const char kCopyDoc[];
extern const char kBenchMpiDoc[];

#endif /* COVEY_FRAMEWORKS_NATIVE_NATIVE_H_ */
