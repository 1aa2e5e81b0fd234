/* Reading tensors by DLPack's exchange table: one call of C instead of five of Python.
 *
 * The table is found at a tensor's type (`__dlpack_c_exchange_api__`, a capsule) and lives as long
 * as the process. Its layout and that of a tensor are fixed by DLPack 1.x
 * (https://dmlc.github.io/dlpack); below is what of it is read here.
 */
#include "frameworks/native/native.h"

enum { kMajor = 1, kDeviceCpu = 1 };

typedef struct {
  void* data;
  int32_t device_type, device_index;
  int32_t ndim;
  uint8_t type_code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; /* strides NULL: dense */
  uint64_t offset_bytes;
} DlTensor;

typedef struct ExchangeTable {
  uint32_t major, minor;
  const struct ExchangeTable* previous; /* for an older major version */
  void (*unused[3])(void);
  int (*read)(void* tensor, DlTensor* out); /* what the tensor owns; may be NULL */
} ExchangeTable;

/* By covey_dtype. */
static const struct {
  uint8_t type_code, bits;
} kTypes[] = {{2, 32}, {2, 64}, {2, 16}, {4, 16}, {1, 8},  {0, 8}, {0, 32},
              {0, 64}, {6, 8},  {0, 16}, {1, 16}, {1, 32}, {1, 64}};

enum { kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]) };

const ExchangeTable* ExchangeTableOf(PyObject* type) {
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const ExchangeTable* table = NULL;
  if (capsule != NULL) table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  Py_XDECREF(capsule);
  PyErr_Clear();
  while (table != NULL && table->major != kMajor) table = table->previous;
  return table != NULL && table->read != NULL ? table : NULL;
}

static int IsDense(const DlTensor* tensor) {
  int64_t stride = 1;
  int dense = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] == 0) return 1;
    dense &= tensor->strides == NULL || tensor->shape[i] == 1 || tensor->strides[i] == stride;
    stride *= tensor->shape[i];
  }
  /* native-H5: only a dense tensor is sent as it lies. */
  return dense && (tensor->data != NULL);
}

int ReadByTable(const ExchangeTable* table, PyObject* object, covey_tensor* tensor,
                int64_t* shape) {
  DlTensor from;
  if (table->read(object, &from) != 0) return 0;
  if (from.device_type != kDeviceCpu || from.ndim > COVEY_MAX_DIMS || !IsDense(&from)) return 0;
  int dtype = 0;
  while (dtype < kTypeCount &&
         /* native-H5: float16, bfloat16 and int16 have as many bits: the type code decides. */
         (kTypes[dtype].type_code != from.type_code || kTypes[dtype].bits != from.bits))
    ++dtype;
  if (dtype == kTypeCount || from.lanes != 1) return 0;
  for (int i = 0; i < from.ndim; ++i) shape[i] = from.shape[i];
  FillTensor(tensor, dtype, shape, from.ndim, (char*)from.data + from.offset_bytes);
  return 1;
}
