// What tests of NCCL share: a driver and a library without a card, and operations on its tensors.
#ifndef COVEY_TESTS_CONTRACT_NCCL_RANKS_H_
#define COVEY_TESTS_CONTRACT_NCCL_RANKS_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/contract/threads.h"
#include "tests/plugins/driver/fake_cuda.h"
#include "tests/plugins/nccl/fake_nccl.h"

namespace covey {

// Their sonames are the real ones, which the plug-in then finds loaded.
inline const FakeCuda& CudaOfTest() {
  void* library = dlopen("tests/plugins/driver/libcuda.so.1", RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return *reinterpret_cast<const FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
}
inline const FakeNccl& NcclOfTest(const char* folder = "nccl") {
  CudaOfTest();
  void* library =
      dlopen(("tests/plugins/" + std::string(folder) + "/libnccl.so.2").c_str(), RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  const FakeNccl& nccl = *reinterpret_cast<const FakeNccl* (*)()>(dlsym(library, "fake_nccl"))();
  nccl.reset();
  return nccl;
}

inline int Stat(covey_runtime* runtime, const std::string& key) {
  char stats[4096];
  covey_stats(runtime, stats, sizeof(stats));
  const std::string text = stats;
  const size_t at = text.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + key.size() + 3);
}

// Memory of the device as one tensor, of one dimension.
struct OnDevice {
  OnDevice(covey_dtype dtype, size_t width, size_t elems, void* used_on)
      : shape(static_cast<int64_t>(elems)), bytes(elems * width), stream(used_on) {
    tensor.dtype = dtype;
    tensor.ndim = 1;
    tensor.shape = &shape;
    tensor.data = CudaOfTest().alloc(bytes);
    tensor.device_type = COVEY_CUDA;
    tensor.stream = stream;
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { CudaOfTest().free(tensor.data); }

  template <typename T>
  void Compute(const std::vector<T>& values) {
    CudaOfTest().compute(tensor.data, values.data(), bytes, stream);
  }
  template <typename T>
  std::vector<T> Read() const {
    std::vector<T> values(bytes / sizeof(T));
    CudaOfTest().read(tensor.data, values.data(), bytes, stream);
    return values;
  }

  int64_t shape;
  size_t bytes;
  void* stream;
  covey_tensor tensor = COVEY_INIT(covey_tensor);
};

// Submits and waits. COVEY_OK, or the code with its text.
inline covey_code Do(covey_runtime* runtime, const covey_request& request, std::string* text) {
  covey_error error = COVEY_INIT(covey_error);
  covey_handle handle = 0;
  covey_code code = covey_submit(runtime, &request, &handle, &error);
  if (code == COVEY_OK) code = covey_wait(runtime, handle, -1, &error);
  *text = error.message;
  if (handle != 0) covey_release(runtime, handle);
  return code;
}

// An allreduce of it in place. `name` may be null, for one of the runtime's.
inline covey_request InPlace(const OnDevice& memory, const char* name, covey_op op = COVEY_SUM) {
  covey_request request = COVEY_INIT(covey_request);
  request.kind = COVEY_ALLREDUCE;
  request.op = op;
  request.name = name;
  request.num_tensors = 1;
  request.inputs = &memory.tensor;
  return request;
}

// The tensor is not ready before `open` is true.
inline void HoldBack(covey_tensor* tensor, std::atomic<bool>* open) {
  const FakeCuda& cuda = CudaOfTest();
  tensor->ready_event = cuda.event();
  void* other = cuda.stream();
  cuda.enqueue(
      other, [](void* is_open) { return static_cast<std::atomic<bool>*>(is_open)->load(); }, open);
  cuda.record(tensor->ready_event, other);
}

// A float32 allreduce of a value of this rank's, in place; the result, or a failure of the test.
inline float SumOf(covey_runtime* runtime, const char* name, float value, size_t elems,
                   void* stream, covey_group group = COVEY_WORLD) {
  OnDevice memory(COVEY_FLOAT32, sizeof(float), elems, stream);
  memory.Compute(std::vector<float>(elems, value));
  covey_request request = InPlace(memory, name);
  request.group = group;
  std::string text;
  EXPECT_EQ(Do(runtime, request, &text), COVEY_OK) << text;
  const std::vector<float> sums = memory.Read<float>();
  for (const float sum : sums) EXPECT_EQ(sum, sums[0]);
  return sums[0];
}

// Until exchanges go over the circuit: all ranks see it after the same one.
inline void AwaitCircuit(covey_runtime* runtime, void* stream, covey_group group = COVEY_WORLD) {
  const int before = Stat(runtime, "exchanges_nccl");
  for (int turn = 0; turn < 100'000 && Stat(runtime, "exchanges_nccl") == before; ++turn)
    SumOf(runtime, "until it is ready", 1, 5000, stream, group);
  EXPECT_GT(Stat(runtime, "exchanges_nccl"), before);
}

// Does `body` until what all ranks look for has come, and some times more: in agreement, so that
// all do it as often.
inline void DoUntil(covey_runtime* runtime, int size, const std::function<bool()>& has_come,
                    const std::function<void()>& body) {
  for (int more = 0; more < 10;) {
    body();
    float came = has_come() ? 1 : 0;
    FloatAllreduce votes("votes", &came, 1);
    std::string text;
    ASSERT_EQ(Do(runtime, votes.request, &text), COVEY_OK) << text;
    more += came == static_cast<float>(size);
  }
}

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_NCCL_RANKS_H_
