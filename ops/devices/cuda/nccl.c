#define _GNU_SOURCE /* dladdr */
#include "ops/devices/cuda/nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char kName[] = "libnccl.so.2";

const char* const kNcclNames[] = {
    "ncclGetVersion",         "ncclGetErrorString",    "ncclGetLastError", "ncclGetUniqueId",
    "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommFinalize", "ncclCommDestroy",
    "ncclCommAbort",          "ncclGroupStart",        "ncclGroupEnd",     "ncclAllReduce",
    "ncclBroadcast",          "ncclReduceScatter",
};

enum { kCount = sizeof(kNcclNames) / sizeof(kNcclNames[0]) };

/* PyPI's wheel puts it into site-packages, where the package with this plug-in lies too. */
static void* OpenBesideThePackage(void) {
  Dl_info self;
  if (dladdr(kNcclNames, &self) == 0 || self.dli_fname == NULL) return NULL;
  const char* slash = strrchr(self.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash - self.dli_fname) + 1;
  char path[PATH_MAX];
  const int length =
      snprintf(path, sizeof(path), "%.*s../nvidia/nccl/lib/%s", folder, self.dli_fname, kName);
  return length < (int)sizeof(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

int NcclOpen(NcclLibrary* nccl, char* error, size_t capacity) {
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == NULL) library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) library = OpenBesideThePackage();
  if (library == NULL) {
    snprintf(error, capacity,
             "there is no NCCL (%s): torch for CUDA brings it, and so does pip install "
             "nvidia-nccl-cu13 (or -cu12)",
             kName);
    return 1;
  }
  void* found[kCount];
  for (int i = 0; i < kCount; ++i) found[i] = dlsym(library, kNcclNames[i]);
  memcpy(nccl, found, sizeof(found));
  int version = 0;
  if (nccl->version != NULL && nccl->version(&version) == kNcclSuccess &&
      version < kNcclLeastVersion) {
    snprintf(error, capacity, "NCCL is of version %d, and %d (%d.%d) is the oldest that is used",
             version, kNcclLeastVersion, kNcclLeastVersion / 10000, kNcclLeastVersion / 100 % 100);
    return 1;
  }
  for (int i = 0; i < kCount; ++i) {
    if (found[i] != NULL) continue;
    snprintf(error, capacity, "the NCCL of this process has no function %s", kNcclNames[i]);
    return 1;
  }
  return 0;
}
