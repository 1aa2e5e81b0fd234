// Goal: device tensors of ranks of one host are reduced by the devices among themselves, to the
// bits that the CPU gives, once all ranks have opened each other's memory; where some cannot, or
// there is no memory, they go through the host and are right all the same.
// Method: the plug-in over a driver without a card, which does everything late and runs the
// kernels' own loops; ranks as threads. What a step gives is compared with the same tensor sent
// from the CPU. Another seed: --gtest_random_seed=N.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/contract/threads.h"
#include "tests/plugins/driver/fake_cuda.h"

namespace covey {
namespace {

constexpr const char* kSettings = "plugin_path=tests/plugins/cuda\nipc_bytes=0B";
// Of a stream, before its ranks know that all can open each other's memory.
constexpr int kThroughTheHost = 2;

const FakeCuda& Fake() {
  void* library = dlopen("tests/plugins/driver/libcuda.so.1", RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return *reinterpret_cast<const FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
}

size_t SizeOf(covey_dtype dtype) {
  constexpr size_t kSizes[] = {4, 8, 2, 2, 1, 1, 4, 8, 1};
  return kSizes[dtype];
}

using Bytes = std::vector<char>;

Bytes Random(size_t length, uint32_t seed) {
  std::mt19937 rng(seed + static_cast<uint32_t>(GTEST_FLAG_GET(random_seed)));
  Bytes bytes(length);
  for (char& byte : bytes) byte = static_cast<char>(rng());
  return bytes;
}

uint64_t Stat(covey_runtime* runtime, const std::string& name) {
  char text[4096];
  covey_stats(runtime, text, sizeof(text));
  const char* found = std::strstr(text, ("\"" + name + "\":").c_str());
  EXPECT_NE(found, nullptr) << name << " in " << text;
  return found == nullptr ? 0 : std::strtoull(found + name.size() + 3, nullptr, 10);
}

// A reduction of one tensor, or two, of `elems` elements each, on the device or on the CPU.
struct Op {
  covey_kind kind = COVEY_ALLREDUCE;
  covey_dtype dtype = COVEY_FLOAT32;
  covey_op op = COVEY_SUM;
  int64_t elems = 1000;
  double prescale = 1;
  double postscale = 1;
  bool in_place = true;

  size_t InputBytes() const { return static_cast<size_t>(elems) * SizeOf(dtype); }
  size_t OutputBytes(int rank, int size) const {
    if (kind != COVEY_REDUCESCATTER) return InputBytes();
    const int64_t share = elems / size + (rank < elems % size ? 1 : 0);
    return static_cast<size_t>(share) * SizeOf(dtype);
  }
};

// Runs the op to its end. Empty: it failed, and `why` says how.
Bytes ResultOf(covey_runtime* runtime, const Op& op, const std::string& name, const Bytes& bytes,
               size_t out_bytes, void* stream, std::string* why) {
  const FakeCuda& fake = Fake();
  const bool on_device = stream != nullptr;
  Bytes in = bytes, out(out_bytes);
  void* device_in = on_device ? fake.alloc(in.size()) : nullptr;
  void* device_out = on_device && !op.in_place ? fake.alloc(out.size()) : device_in;
  if (on_device) fake.compute(device_in, in.data(), in.size(), stream);
  int64_t shape = op.elems;
  int64_t out_shape = static_cast<int64_t>(out_bytes / SizeOf(op.dtype));
  covey_tensor from = COVEY_INIT(covey_tensor);
  from.dtype = op.dtype;
  from.ndim = 1;
  from.shape = &shape;
  from.data = on_device ? device_in : in.data();
  from.device_type = on_device ? COVEY_CUDA : COVEY_CPU;
  from.stream = stream;
  covey_tensor to = from;
  to.shape = &out_shape;
  to.data = on_device ? device_out : out.data();
  covey_request request = COVEY_INIT(covey_request);
  request.kind = op.kind;
  request.op = op.op;
  request.name = name.c_str();
  request.num_tensors = 1;
  request.inputs = &from;
  request.outputs = &to;
  request.prescale = op.prescale;
  request.postscale = op.postscale;
  covey_error error = COVEY_INIT(covey_error);
  covey_handle handle = 0;
  bool ok = covey_submit(runtime, &request, &handle, &error) == COVEY_OK;
  if (ok) {
    ok = covey_wait(runtime, handle, -1, &error) == COVEY_OK;
    covey_release(runtime, handle);
  }
  if (!ok) *why = error.message;
  if (on_device) fake.read(device_out, out.data(), out.size(), stream);
  if (device_out != device_in) fake.free(device_out);
  if (on_device) fake.free(device_in);
  return ok ? out : Bytes();
}

// Some steps of the op on the device and on the CPU.
void Compare(covey_runtime* runtime, int rank, int size, const Op& op, void* stream) {
  const std::string name = std::to_string(op.kind) + "." + std::to_string(op.dtype) + "." +
                           std::to_string(op.op) + "." + std::to_string(op.elems) +
                           (op.in_place ? "" : ".apart");
  for (int step = 0; step < kThroughTheHost + 2; ++step) {
    const auto seed = static_cast<uint32_t>(1000 * step + 10 * rank + op.dtype);
    const Bytes in = Random(op.InputBytes(), seed);
    std::string why;
    const size_t out_bytes = op.OutputBytes(rank, size);
    const Bytes actual = ResultOf(runtime, op, "g." + name, in, out_bytes, stream, &why);
    ASSERT_EQ(why, "") << name;
    const Bytes expected = ResultOf(runtime, op, "c." + name, in, out_bytes, nullptr, &why);
    ASSERT_EQ(why, "") << name;
    ASSERT_TRUE(actual == expected) << name << " step " << step << " of " << size << " ranks";
  }
}

TEST(CudaIpcTest, AllTypesAndOpsGiveTheBitsOfTheCpu) {
  const FakeCuda& fake = Fake();
  const int opened_before = fake.opened();
  for (const int size : {1, 2, 3, 4}) {
    RunRanks(size, kSettings, [&](int rank, covey_runtime*& runtime) {
      void* stream = fake.stream();
      uint64_t done = 0;
      for (const covey_dtype dtype : {COVEY_FLOAT32, COVEY_FLOAT64, COVEY_FLOAT16, COVEY_BFLOAT16,
                                      COVEY_UINT8, COVEY_INT8, COVEY_INT32, COVEY_INT64}) {
        for (const covey_op op : {COVEY_SUM, COVEY_AVERAGE, COVEY_MIN, COVEY_MAX, COVEY_PRODUCT}) {
          Compare(runtime, rank, size, {.dtype = dtype, .op = op, .elems = 1003}, stream);
          if (testing::Test::HasFatalFailure()) return;
          done += 2;
        }
      }
      EXPECT_EQ(Stat(runtime, "exchanges_ipc"), size > 1 ? done : 0);
      EXPECT_EQ(fake.waits(), 0) << "the training thread waited for the device";
    });
  }
  EXPECT_EQ(fake.opened(), opened_before) << "memory of peers is still open";
}

TEST(CudaIpcTest, LongAndShortScaledAndApart) {
  const FakeCuda& fake = Fake();
  RunRanks(3, kSettings, [&](int rank, covey_runtime*& runtime) {
    void* stream = fake.stream();
    for (const int64_t elems : {int64_t{1}, int64_t{2}, int64_t{400'000}})
      Compare(runtime, rank, 3, {.elems = elems}, stream);
    const Op scaled = {.dtype = COVEY_BFLOAT16, .prescale = 0.7, .postscale = -1.5};
    Compare(runtime, rank, 3, scaled, stream);
    Compare(runtime, rank, 3, {.elems = 5000, .in_place = false}, stream);
    Compare(runtime, rank, 3,
            {.kind = COVEY_REDUCESCATTER, .dtype = COVEY_INT32, .elems = 1001, .in_place = false},
            stream);
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 12u);
    EXPECT_EQ(Stat(runtime, "exchanges_voided"), 0u);
  });
}

// What opens the device and makes rooms may wait; the steps after the first never do. The driver
// counts for itself, so the plug-in has no such call that it does not count.
TEST(CudaIpcTest, NoStepMakesACallThatMayWaitForTheDevice) {
  const FakeCuda& fake = Fake();
  for (const char* path : {"ipc", "staged"}) {
    const std::string settings = std::string(kSettings) + "\ncuda_path=" + path;
    const int before = fake.synchronous();
    std::atomic<uint64_t> counted = 0;
    std::barrier same(2);
    RunRanks(2, settings.c_str(), [&](int rank, covey_runtime*& runtime) {
      void* stream = fake.stream();
      uint64_t at_first = 0;
      for (const bool first : {true, false}) {
        for (const int64_t elems : {int64_t{10}, int64_t{400'000}})
          Compare(runtime, rank, 2, {.elems = elems}, stream);
        if (first) at_first = Stat(runtime, "device_synchronous_calls");
      }
      EXPECT_GT(at_first, 0u) << path;
      EXPECT_EQ(Stat(runtime, "device_synchronous_calls"), at_first) << path;
      counted += at_first;
      same.arrive_and_wait();
      EXPECT_EQ(counted, static_cast<uint64_t>(fake.synchronous() - before)) << path;
      same.arrive_and_wait();
    });
  }
}

TEST(CudaIpcTest, WhereSomeCannotBeOpenedAllGoThroughTheHost) {
  const FakeCuda& fake = Fake();
  fake.refuse(0, 1);
  RunRanks(2, kSettings, [&](int rank, covey_runtime*& runtime) {
    Compare(runtime, rank, 2, {.elems = 1000}, fake.stream());
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 0u);
  });
  fake.refuse(0, 0);
}

TEST(CudaIpcTest, TheKnobTurnsItOff) {
  const FakeCuda& fake = Fake();
  const std::string settings = std::string(kSettings) + "\ncuda_path=staged";
  RunRanks(2, settings.c_str(), [&](int rank, covey_runtime*& runtime) {
    Compare(runtime, rank, 2, {.elems = 1000}, fake.stream());
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 0u);
  });
}

TEST(CudaIpcTest, ShortMessagesGoThroughTheHost) {
  const FakeCuda& fake = Fake();
  const std::string settings = std::string(kSettings) + "\nipc_bytes=4004B";
  RunRanks(2, settings.c_str(), [&](int rank, covey_runtime*& runtime) {
    void* stream = fake.stream();
    Compare(runtime, rank, 2, {.elems = 1000}, stream);
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 0u);
    Compare(runtime, rank, 2, {.elems = 1001}, stream);
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 2u);
  });
}

// Longer than what is allocated at once, so there must be more when there is none.
TEST(CudaIpcTest, WithoutMemoryForARoomItGoesThroughTheHostOnceMore) {
  const FakeCuda& fake = Fake();
  std::barrier same(2);
  RunRanks(2, kSettings, [&](int rank, covey_runtime*& runtime) {
    void* stream = fake.stream();
    const Op op = {.dtype = COVEY_UINT8, .elems = 40 << 20};
    for (int step = 0; step < kThroughTheHost + 2; ++step) {
      if (step == kThroughTheHost) {
        same.arrive_and_wait();
        if (rank == 0) fake.refuse(1, 0);
        same.arrive_and_wait();
      }
      std::string why;
      const Bytes in(op.InputBytes(), static_cast<char>(rank + step));
      const Bytes out = ResultOf(runtime, op, "x", in, in.size(), stream, &why);
      ASSERT_EQ(why, "");
      ASSERT_TRUE(out == Bytes(in.size(), static_cast<char>(2 * step + 1))) << "step " << step;
    }
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 0u);
    EXPECT_EQ(Stat(runtime, "exchanges_voided"), 1u);
    same.arrive_and_wait();
  });
  fake.refuse(0, 0);
}

}  // namespace
}  // namespace covey
