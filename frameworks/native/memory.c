/* The type covey._native.Memory: memory of the core, with the buffer protocol.
 *
 * Invariants:
 *  1. It is given back exactly once: when the Memory and every buffer over it are gone. Neither
 *     release of a handle nor shutdown ends it.
 *  2. Its length and address never change.
 *
 * Types made from a spec may have the two buffer slots since Python 3.9, but the headers of the
 * limited API name them and Py_buffer only since 3.11: hence they are declared here. Numbers and
 * layout are part of the stable ABI.
 */
#include "frameworks/native/native.h"

enum { kSlotGetBuffer = 1 };
enum { kFormat = 0x4, kShape = 0x8, kStrides = 0x10 | kShape };

typedef struct {
  void* data;
  PyObject* owner;
  Py_ssize_t length_bytes;
  Py_ssize_t item_bytes;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
} Buffer; /* Py_buffer */

typedef struct {
  PyObject_HEAD
  void* data;
  Py_ssize_t length_bytes;
  void (*give_back)(void* data);
} Memory;

/* Guarded by the interpreter lock. */
static PyTypeObject* memory_type;
static Py_ssize_t alive;

PyObject* NewMemory(void* data, Py_ssize_t length_bytes, void (*give_back)(void* data)) {
  Memory* self = PyObject_New(Memory, memory_type);
  if (self == NULL) {
    give_back(data);
    return NULL;
  }
  self->data = data;
  self->length_bytes = length_bytes;
  self->give_back = give_back;
  ++alive;
  return (PyObject*)self;
}

PyObject* MemoriesAlive(PyObject* module, PyObject* unused) {
  (void)module;
  (void)unused;
  return PyLong_FromSsize_t(alive);
}

PyObject* AfterFork(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  covey_after_fork(NULL);
  Py_RETURN_NONE;
}

static void MemoryDealloc(PyObject* object) {
  Memory* self = (Memory*)object;
  PyTypeObject* type = Py_TYPE(object);
  /* native-H4: given back once, when no buffer over it is left. */
  self->give_back(self->data);
  --alive;
  PyObject_Free(object);
  Py_DECREF(type);
}

static Py_ssize_t MemoryLength(PyObject* object) { return ((Memory*)object)->length_bytes; }

static int MemoryGetBuffer(PyObject* object, Buffer* buffer, int flags) {
  Memory* self = (Memory*)object;
  /* native-H4: each buffer holds the Memory, so it is not given back under a reader. */
  Py_INCREF(object);
  *buffer = (Buffer){.data = self->data,
                     .owner = object,
                     .length_bytes = self->length_bytes,
                     .item_bytes = 1,
                     .ndim = 1,
                     .format = (flags & kFormat) != 0 ? "B" : NULL,
                     .shape = (flags & kShape) != 0 ? &buffer->length_bytes : NULL,
                     .strides = (flags & kStrides) == kStrides ? &buffer->item_bytes : NULL};
  return 0;
}

static PyType_Slot memory_slots[] = {
    {Py_tp_new, (void*)RefuseNew},
    {Py_tp_dealloc, (void*)MemoryDealloc},
    {Py_sq_length, (void*)MemoryLength},
    {kSlotGetBuffer, (void*)MemoryGetBuffer},
    {Py_tp_doc, (void*)"Writable bytes of the core, given back when nobody uses them any more."},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "covey._native.Memory",
    .basicsize = sizeof(Memory),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = memory_slots,
};

int AddMemoryType(PyObject* module) {
  return (memory_type = AddType(module, &memory_spec, "Memory")) != NULL ? 0 : -1;
}
