/* The part of NCCL that the plug-in uses, found at run time in libnccl.so.2.
 *
 * Declared here and not taken from nccl.h, so that the plug-in is built everywhere and needs no
 * NCCL: the library keeps these functions as they are. Where there is an nccl.h,
 * tests/golden/nccl_test.py holds the declarations against it.
 */
#ifndef COVEY_OPS_DEVICES_CUDA_NCCL_H_
#define COVEY_OPS_DEVICES_CUDA_NCCL_H_

#include <stddef.h>

#include "ops/devices/cuda/driver.h"

/* The oldest that is used, as ncclGetVersion tells it: 2.18. From then on communicators that are
 * made without waiting can be aborted while they are made. */
enum { kNcclLeastVersion = 21800 };

/* ncclResult_t. */
enum { kNcclSuccess = 0, kNcclInProgress = 7 };
/* ncclDataType_t. */
enum {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9
};
/* ncclRedOp_t. */
enum { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3, kNcclAvg = 4 };

typedef struct ncclComm* NcclComm;
typedef struct NcclId {
  char bytes[128];
} NcclId;

/* ncclConfig_t as 2.14 had it, which says its size and version: what came later is as NCCL has
 * it. */
typedef struct NcclConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int unused;
} NcclConfig;
#define kNcclConfigMagic 0xcafebeefu
enum { kNcclConfigVersion = 21400 };

typedef struct NcclLibrary {
  int (*version)(int* version);
  const char* (*error_text)(int result);
  const char* (*last_error)(NcclComm comm);
  int (*unique_id)(NcclId* id);
  int (*init)(NcclComm* comm, int size, NcclId id, int rank, NcclConfig* config);
  int (*async_error)(NcclComm comm, int* result);
  int (*finalize)(NcclComm comm);
  int (*destroy)(NcclComm comm);
  int (*abort)(NcclComm comm);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, NcclComm comm,
                    CudaStream stream);
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, NcclComm comm,
                   CudaStream stream);
  int (*reduce_scatter)(const void* from, void* to, size_t count, int type, int op, NcclComm comm,
                        CudaStream stream);
} NcclLibrary;

/* Their names in the library, in the order of the struct. */
extern const char* const kNcclNames[sizeof(NcclLibrary) / sizeof(void (*)(void))];

/* Opens the library: the one that this process has already (torch's), else the system's, else that
 * of PyPI's wheel beside the package. Takes a while. 0, or 1 with one sentence in `error`. */
int NcclOpen(NcclLibrary* nccl, char* error, size_t capacity);

#endif /* COVEY_OPS_DEVICES_CUDA_NCCL_H_ */
