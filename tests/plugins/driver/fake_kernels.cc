// Kernels, and memory that processes have in common.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/plugins/driver/fake_cuda.h"
#include "tests/plugins/driver/fake_driver.h"
#include "tests/plugins/driver/host_kernels.h"

namespace fake {
namespace {

// What is in a handle.
struct Handle {
  pid_t pid;
  int fd;
  size_t length;
};

struct Module {
  std::string image;
  int functions = 0;
};
struct Launched {
  const covey::HostKernel* kernel;
  uint64_t threads;  // of a row
  uint32_t rows;
};

void RunReduce(const Launched& launched, CudaReduceArgs args) {
  for (uint32_t k = 0; k < args.num_inputs; ++k) args.inputs[k] = OnHost(args.inputs[k]);
  for (uint32_t k = 0; k < args.num_outputs; ++k) args.outputs[k] = OnHost(args.outputs[k]);
  for (uint64_t t = 0; t < launched.threads; ++t)
    launched.kernel->reduce(args, t, launched.threads);
}

void RunRows(const Launched& launched, CudaRowsArgs args) {
  for (uint32_t r = 0; r < launched.rows; ++r) {
    args.rows[r].to = OnHost(args.rows[r].to);
    args.rows[r].from = OnHost(args.rows[r].from);
    for (uint64_t t = 0; t < launched.threads; ++t)
      launched.kernel->row(args, r, t, launched.threads);
  }
}

// What the stream does once it has come so far: arguments are copied now, as by the driver.
std::function<bool()> TaskOf(const Launched& launched, const void* args) {
  if (launched.kernel->reduce != nullptr)
    return [launched, copy = *static_cast<const CudaReduceArgs*>(args)] {
      RunReduce(launched, copy);
      return true;
    };
  return [launched, copy = *static_cast<const CudaRowsArgs*>(args)] {
    RunRows(launched, copy);
    return true;
  };
}

}  // namespace

extern "C" {

SHOWN int cuModuleLoadData(void** module, const void* image) {
  ++It().synchronous;
  if (Depth() == 0) return kNoContext;
  // As of a compiler that does not understand it.
  if (std::strstr(static_cast<const char*>(image), ".entry") == nullptr) return kBadImage;
  *module = new Module{static_cast<const char*>(image)};
  const std::lock_guard lock(It().mutex);
  ++It().modules;
  return kOk;
}
SHOWN int cuModuleUnload(void* module) {
  ++It().synchronous;
  delete static_cast<Module*>(module);
  const std::lock_guard lock(It().mutex);
  --It().modules;
  return kOk;
}
SHOWN int cuModuleGetFunction(const void** function, void* module, const char* name) {
  const std::string entry = std::string(".entry ") + name + "(";
  if (static_cast<Module*>(module)->image.find(entry) == std::string::npos) return kNotFound;
  *function = covey::FindHostKernel(name);
  return *function != nullptr ? kOk : kNotFound;
}
SHOWN int cuLaunchKernel(const void* function, unsigned blocks_x, unsigned blocks_y,
                         unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                         unsigned threads_z, unsigned, void* stream, void** parameters, void**) {
  const std::lock_guard lock(It().mutex);
  if (Depth() == 0) return kNoContext;
  if (It().lost) return kLost;
  if (blocks_x == 0 || blocks_y == 0 || blocks_z != 1 || threads_x - 1 >= 1024 || threads_y != 1 ||
      threads_z != 1)
    return kInvalid;
  const Launched launched = {static_cast<const covey::HostKernel*>(function),
                             uint64_t{blocks_x} * threads_x, blocks_y};
  ++It().launches;
  Of(stream)->tasks.push_back({TaskOf(launched, parameters[0])});
  return kOk;
}
SHOWN int cuMemAlloc_v2(uint64_t* memory, size_t length) {
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  if (Depth() == 0) return kNoContext;
  if (It().no_memory) return kNoMemory;
  const int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(length)) != 0) return kNoMemory;
  void* mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return kNoMemory;
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  It().shared[address] = {fd, length};
  *memory = address ^ kOnDevice;
  return kOk;
}
SHOWN int cuMemFree_v2(uint64_t memory) {
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  const auto found = It().shared.find(OnHost(memory));
  if (found == It().shared.end()) return kInvalid;
  munmap(reinterpret_cast<void*>(found->first), found->second.length);
  close(found->second.fd);
  It().shared.erase(found);
  return kOk;
}
SHOWN int cuIpcGetMemHandle(void* handle, uint64_t memory) {
  const std::lock_guard lock(It().mutex);
  const auto found = It().shared.find(OnHost(memory));
  if (found == It().shared.end()) return kInvalid;
  const Handle made = {getpid(), found->second.fd, found->second.length};
  std::memcpy(handle, &made, sizeof(made));
  return kOk;
}
// Unlike a card's it opens memory of this process too, at another address: ranks may be threads.
SHOWN int cuIpcOpenMemHandle_v2(uint64_t* memory, FakeCudaHandle handle, unsigned) {
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  if (Depth() == 0) return kNoContext;
  if (It().no_opening) return kInvalid;
  Handle theirs;
  std::memcpy(&theirs, &handle, sizeof(theirs));
  const std::string path =
      "/proc/" + std::to_string(theirs.pid) + "/fd/" + std::to_string(theirs.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalid;
  void* mapped = mmap(nullptr, theirs.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return kInvalid;
  It().opened[reinterpret_cast<uintptr_t>(mapped)] = theirs.length;
  *memory = reinterpret_cast<uintptr_t>(mapped) ^ kOnDevice;
  return kOk;
}
SHOWN int cuIpcCloseMemHandle(uint64_t memory) {
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  const auto found = It().opened.find(OnHost(memory));
  if (found == It().opened.end()) return kInvalid;
  munmap(reinterpret_cast<void*>(found->first), found->second);
  It().opened.erase(found);
  return kOk;
}
SHOWN int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t length, void* stream) {
  const std::lock_guard lock(It().mutex);
  if (Depth() == 0) return kNoContext;
  if (It().lost) return kLost;
  Of(stream)->tasks.push_back({[to, from, length] {
    std::memcpy(reinterpret_cast<void*>(OnHost(to)), reinterpret_cast<void*>(OnHost(from)), length);
    return true;
  }});
  return kOk;
}

}  // extern "C"

}  // namespace fake
