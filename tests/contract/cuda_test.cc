// Goal: tensors of CUDA through the C API and the plug-in libcovey_cuda.so: right results on the
// user's stream, after what the user's stream had to do, without a thread of the user's waiting for
// the device; what cannot be used says why.
// Method: real shared memory, ranks as threads, and a driver without a card (tests/plugins/driver)
// that does everything late. The machine's own driver is not asked.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "core/api/covey_neighbors.h"
#include "tests/contract/threads.h"
#include "tests/plugins/driver/fake_cuda.h"

namespace covey {
namespace {

constexpr const char* kSettings = "plugin_path=ops/devices\ncuda_path=staged";

// Its soname is the real driver's, which the plug-in then finds loaded.
const FakeCuda& Fake() {
  void* library = dlopen("tests/plugins/driver/libcuda.so.1", RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return *reinterpret_cast<const FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
}

// A float32 allreduce in place of memory on the device.
struct CudaAllreduce : FloatAllreduce {
  CudaAllreduce(const FakeCuda& cuda, const char* name, size_t elems)
      : FloatAllreduce(name, static_cast<float*>(cuda.alloc(elems * sizeof(float))),
                       static_cast<int64_t>(elems)),
        fake(cuda),
        stream(cuda.stream()) {
    tensor.device_type = COVEY_CUDA;
    tensor.stream = stream;
  }
  // Nothing may be left to do on the stream, as with any memory of a device: Read.
  ~CudaAllreduce() { fake.free(tensor.data); }

  // By and by the stream computes that all elements are `value`.
  void Compute(float value) {
    const std::vector<float> values(static_cast<size_t>(shape), value);
    fake.compute(tensor.data, values.data(), values.size() * sizeof(float), stream);
  }
  std::vector<float> Read() const {
    std::vector<float> values(static_cast<size_t>(shape), -1);
    fake.read(tensor.data, values.data(), values.size() * sizeof(float), stream);
    return values;
  }

  const FakeCuda& fake;
  void* stream;
};

TEST(CudaTest, ResultsAreOnTheUsersStreamAndNobodyWaitsForTheDevice) {
  const FakeCuda& cuda = Fake();
  const int before = cuda.left();
  RunRanks(3, kSettings, [&](int rank, covey_runtime*& runtime) {
    const size_t sizes[] = {1, 1000, 300'000};
    for (const size_t elems : sizes) {
      const std::string name = "x" + std::to_string(elems);
      CudaAllreduce op(cuda, name.c_str(), elems);
      for (int step = 0; step < 5; ++step) {
        op.Compute(static_cast<float>(rank + step));
        covey_error error = COVEY_INIT(covey_error);
        covey_handle handle = 0;
        ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
        ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
        covey_release(runtime, handle);
        EXPECT_EQ(cuda.depth(), 0) << "the thread's current context is another";
        ASSERT_EQ(op.Read(), std::vector<float>(elems, 3.0f * static_cast<float>(step) + 3.0f));
      }
    }
    EXPECT_EQ(cuda.waits(), 0) << "the training thread waited for the device";
    char stats[4096];
    covey_stats(runtime, stats, sizeof(stats));
    EXPECT_NE(std::string(stats).find("\"device_to_host_bytes\":6020020"), std::string::npos)
        << stats;
  });
  EXPECT_EQ(cuda.unpinned(), 0) << "copies from and to memory that was not pinned";
  EXPECT_EQ(cuda.left() - before, 9) << "there is more left than the streams of this test";
}

// Of several segments and legs: each rank takes a quarter of the one before.
TEST(CudaTest, NeighborsAreAveraged) {
  const FakeCuda& cuda = Fake();
  RunRanks(3, kSettings, [&](int rank, covey_runtime*& runtime) {
    const int32_t before = (rank + 2) % 3;
    const double quarter = 0.25;
    covey_neighbors said = COVEY_INIT(covey_neighbors);
    said.own_weight = 0.75;
    said.sources = &before;
    said.weights = &quarter;
    said.num_sources = 1;
    for (const size_t elems : {size_t{1}, size_t{300'000}}) {
      CudaAllreduce op(cuda, elems == 1 ? "one" : "many", elems);
      op.request.kind = COVEY_NEIGHBOR_ALLREDUCE;
      op.request.neighbors = &said;
      for (int step = 0; step < 3; ++step) {
        op.Compute(static_cast<float>(4 * rank + step));
        covey_error error = COVEY_INIT(covey_error);
        covey_handle handle = 0;
        ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
        ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
        covey_release(runtime, handle);
        ASSERT_EQ(op.Read(),
                  std::vector<float>(elems, static_cast<float>(3 * rank + before + step)));
      }
    }
  });
  EXPECT_EQ(cuda.unpinned(), 0) << "copies from and to memory that was not pinned";
}

TEST(CudaTest, WaitsForTheEventItIsGiven) {
  const FakeCuda& cuda = Fake();
  RunRanks(2, kSettings, [&](int rank, covey_runtime*& runtime) {
    CudaAllreduce op(cuda, "x", 5000);
    op.Compute(static_cast<float>(rank + 1));
    op.tensor.ready_event = cuda.event();
    cuda.record(op.tensor.ready_event, op.stream);
    covey_error error = COVEY_INIT(covey_error);
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
    ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
    covey_release(runtime, handle);
    EXPECT_EQ(op.Read(), std::vector<float>(5000, 3.0f));
  });
}

// Names of many tensors in flight at once, which are bundled, and other kinds between them.
TEST(CudaTest, ManyTensorsTravelTogether) {
  const FakeCuda& cuda = Fake();
  RunRanks(2, kSettings, [&](int rank, covey_runtime*& runtime) {
    std::vector<std::unique_ptr<CudaAllreduce>> ops;
    std::vector<std::string> names;
    for (int i = 0; i < 40; ++i) names.push_back("t" + std::to_string(i));
    for (int i = 0; i < 40; ++i)
      ops.push_back(std::make_unique<CudaAllreduce>(cuda, names[static_cast<size_t>(i)].c_str(),
                                                    static_cast<size_t>(i * 37 + 1)));
    for (int step = 0; step < 6; ++step) {
      covey_error error = COVEY_INIT(covey_error);
      std::vector<covey_handle> handles(ops.size());
      for (size_t i = 0; i < ops.size(); ++i) {
        ops[i]->Compute(static_cast<float>((rank + 1) * step) + static_cast<float>(i));
        ASSERT_EQ(covey_submit(runtime, &ops[i]->request, &handles[i], &error), COVEY_OK);
      }
      for (size_t i = 0; i < ops.size(); ++i) {
        ASSERT_EQ(covey_wait(runtime, handles[i], -1, &error), COVEY_OK) << error.message;
        covey_release(runtime, handles[i]);
        const float expected = 3.0f * static_cast<float>(step) + 2.0f * static_cast<float>(i);
        ASSERT_EQ(ops[i]->Read(), std::vector<float>(ops[i]->Read().size(), expected));
      }
    }
    EXPECT_EQ(cuda.waits(), 0);
  });
}

TEST(CudaTest, GathersInMemoryOfTheHost) {
  const FakeCuda& cuda = Fake();
  RunRanks(2, kSettings, [&](int rank, covey_runtime*& runtime) {
    CudaAllreduce op(cuda, "g", static_cast<size_t>(1000 + rank));
    op.Compute(static_cast<float>(rank + 1));
    op.request.kind = COVEY_ALLGATHER;
    covey_error error = COVEY_INIT(covey_error);
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
    ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
    covey_tensor result = COVEY_INIT(covey_tensor);
    ASSERT_EQ(covey_result(runtime, handle, 0, &result, nullptr, &error), COVEY_OK);
    EXPECT_EQ(result.device_type, COVEY_CPU);
    EXPECT_EQ(result.shape[0], 2001);
    for (int i = 0; i < 2001; ++i)
      ASSERT_EQ(static_cast<float*>(result.data)[i], i < 1000 ? 1.0f : 2.0f);
    covey_release(runtime, handle);
    op.Read();
  });
}

TEST(CudaTest, WhatCannotBeUsedSaysWhy) {
  const FakeCuda& cuda = Fake();
  RunRanks(1, kSettings, [&](int, covey_runtime*& runtime) {
    CudaAllreduce op(cuda, "grad", 10);
    op.Compute(1);
    covey_error error = COVEY_INIT(covey_error);
    covey_handle handle = 0;
    op.tensor.device_index = 3;
    EXPECT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_UNSUPPORTED);
    EXPECT_STREQ(error.message,
                 "'grad': the plug-in cuda reaches no device: CUDA has 1 devices here that this "
                 "process may see (CUDA_VISIBLE_DEVICES)");
    op.tensor.device_index = 0;
    ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
    ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
    covey_release(runtime, handle);
    op.tensor.device_index = 1;
    EXPECT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_UNSUPPORTED);
    EXPECT_STREQ(error.message,
                 "'grad': rank 0 uses CUDA device 0, and the tensor lies on device 1; a rank uses "
                 "one");
    op.tensor.device_type = COVEY_FAKE_DEVICE;
    EXPECT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_UNSUPPORTED);
    op.Read();
  });
}

TEST(CudaTest, ADeviceThatIsLostEndsWhatIsInFlight) {
  const FakeCuda& cuda = Fake();
  RunRanks(1, kSettings, [&](int, covey_runtime*& runtime) {
    CudaAllreduce op(cuda, "grad", 1000);
    op.Compute(1);
    cuda.fail(1);
    covey_error error = COVEY_INIT(covey_error);
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
    EXPECT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_ABORTED);
    EXPECT_NE(std::string(error.message).find("rank 0 has lost its device: CUDA cannot"),
              std::string::npos)
        << error.message;
    EXPECT_NE(std::string(error.message).find("unspecified launch failure (error 719)"),
              std::string::npos)
        << error.message;
    covey_release(runtime, handle);
    cuda.fail(-1);
    op.Read();
  });
}

}  // namespace
}  // namespace covey
