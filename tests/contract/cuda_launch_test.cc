// Goal: the host's side of the card's kernels: each name is in the module, each launch does all of
// its elements and no other, on the stream it is handed to; what cannot be loaded says why.
// Method: ops/devices/cuda/launch over a driver without a card that runs the same loops by the host
// (tests/plugins/driver), against the scalar reference. The image is a list of names, as the one
// that nvcc makes has (`golden/cuda_kernels_test` reads that).
#include "ops/devices/cuda/launch.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/kernels.h"
#include "tests/plugins/driver/fake_cuda.h"

namespace covey {
namespace {

const FakeCuda& Fake() {
  void* library = dlopen("tests/plugins/driver/libcuda.so.1", RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return *reinterpret_cast<const FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
}

std::string ImageWithout(const char* left_out) {
  std::string image;
  for (const char* name : kCudaKernelNames)
    if (std::strcmp(name, left_out) != 0) image += std::string(".visible .entry ") + name + "(\n";
  return image;
}

// A driver with a context that is current.
class CudaLaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    char error[256] = "";
    ASSERT_EQ(CudaOpenDriver(&driver_, error, sizeof(error)), 0) << error;
    CudaContext context;
    int device = 0;
    ASSERT_EQ(driver_.device(&device, 0), 0);
    ASSERT_EQ(driver_.retain_context(&context, device), 0);
    ASSERT_EQ(driver_.push_context(context), 0);
    stream_ = static_cast<CudaStream>(fake_.stream());
  }
  void TearDown() override {
    CudaUnloadKernels(&driver_, &kernels_);
    driver_.destroy_stream(stream_);
    CudaContext context;
    driver_.pop_context(&context);
  }
  void Load() {
    const char* why = nullptr;
    ASSERT_EQ(CudaLoadKernels(&driver_, ImageWithout("").c_str(), &kernels_, &why), 1) << why;
  }

  // Memory of the device that the stream fills by and by.
  std::byte* Filled(const std::vector<float>& values) {
    void* memory = fake_.alloc(values.size() * sizeof(float));
    fake_.compute(memory, values.data(), values.size() * sizeof(float), stream_);
    return static_cast<std::byte*>(memory);
  }
  std::vector<float> TakeBack(std::byte* memory, size_t count) {
    std::vector<float> values(count);
    fake_.read(memory, values.data(), count * sizeof(float), stream_);
    fake_.free(memory);
    return values;
  }

  const FakeCuda& fake_ = Fake();
  CudaDriver driver_;
  CudaStream stream_ = nullptr;
  CudaKernels kernels_ = {};
};

std::vector<float> Numbers(size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_F(CudaLaunchTest, WhatCannotBeLoadedSaysWhy) {
  const int before = fake_.left();
  const char* why = "not set";
  EXPECT_EQ(CudaLoadKernels(&driver_, "", &kernels_, &why), 0);
  EXPECT_EQ(why, nullptr) << "without an image nothing is wrong";
  EXPECT_EQ(CudaLoadKernels(&driver_, "no kernels", &kernels_, &why), 0);
  EXPECT_STREQ(why, "some error of the fake driver");
  for (const char* name : kCudaKernelNames) {
    EXPECT_EQ(CudaLoadKernels(&driver_, ImageWithout(name).c_str(), &kernels_, &why), 0) << name;
    EXPECT_STREQ(why, "some error of the fake driver");
    EXPECT_EQ(kernels_.module, nullptr);
  }
  EXPECT_EQ(fake_.left(), before) << "a module is left";
}

// From one block to more elements than a launch has threads.
TEST_F(CudaLaunchTest, ReducesAllElementsInTheOrderOfTheStream) {
  Load();
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{1'500'007}}) {
    const std::vector<float> a = Numbers(count, 0.3f), b = Numbers(count, -7);
    std::byte* inputs[] = {Filled(a), Filled(b)};
    std::byte* output = Filled(std::vector<float>(count + 1, 5));
    CudaReduceArgs args = {};
    for (int k = 0; k < 2; ++k) args.inputs[k] = reinterpret_cast<uint64_t>(inputs[k]);
    args.outputs[0] = reinterpret_cast<uint64_t>(output);
    args.count_elems = count;
    args.prescale = 0.7;
    args.postscale = 0.5;
    args.divisor = 3;
    args.num_inputs = 2;
    args.num_outputs = 1;
    args.op = static_cast<uint32_t>(Op::kSum);
    ASSERT_EQ(CudaLaunchReduce(&driver_, &kernels_, static_cast<int>(DType::kF32), &args, stream_),
              0);
    EXPECT_EQ(args.is_aligned, 1u);
    std::vector<float> expected(count + 1, 5);
    const auto* first = reinterpret_cast<const std::byte*>(a.data());
    const auto* second = reinterpret_cast<const std::byte*>(b.data());
    auto* to = reinterpret_cast<std::byte*>(expected.data());
    ScalarKernels().reduce({DType::kF32, Op::kSum, 0.7, 0.5, 3}, std::vector{first, second},
                           {&to, 1}, count, Stores::kCached);
    EXPECT_EQ(TakeBack(output, count + 1), expected);
    for (std::byte* input : inputs) TakeBack(input, count);
  }
}

TEST_F(CudaLaunchTest, FindsAddressesThatAreNotAligned) {
  Load();
  const std::vector<float> values = Numbers(100, 1);
  std::byte* memory = Filled(values);
  CudaReduceArgs args = {};
  args.inputs[0] = reinterpret_cast<uint64_t>(memory) + sizeof(float);
  args.outputs[0] = args.inputs[0];
  args.count_elems = 98;
  args.prescale = 2;
  args.postscale = 1;
  args.divisor = 1;
  args.num_inputs = args.num_outputs = 1;
  ASSERT_EQ(CudaLaunchReduce(&driver_, &kernels_, static_cast<int>(DType::kF32), &args, stream_),
            0);
  EXPECT_EQ(args.is_aligned, 0u);
  std::vector<float> expected = values;
  for (size_t i = 1; i < 99; ++i) expected[i] *= 2;
  EXPECT_EQ(TakeBack(memory, 100), expected);
}

TEST_F(CudaLaunchTest, ManyTensorsAreOneLaunch) {
  Load();
  std::vector<std::byte*> from, to;
  CudaRowsArgs args = {};
  args.num_rows = kCudaMaxRows;
  args.scale = -2;
  for (uint32_t r = 0; r < kCudaMaxRows; ++r) {
    const size_t count = r * r;
    from.push_back(Filled(Numbers(count, static_cast<float>(r))));
    to.push_back(Filled(std::vector<float>(count + 1, 3)));
    args.rows[r] = {reinterpret_cast<uint64_t>(to[r]), reinterpret_cast<uint64_t>(from[r]), count};
  }
  const int scale = kCudaScale + static_cast<int>(DType::kF32);
  ASSERT_EQ(CudaLaunchRows(&driver_, &kernels_, scale, &args, stream_), 0);
  for (uint32_t r = 0; r < kCudaMaxRows; ++r) {
    const size_t count = r * r;
    std::vector<float> expected = Numbers(count, static_cast<float>(r));
    for (float& value : expected) value *= -2;
    expected.push_back(3);
    EXPECT_EQ(TakeBack(to[r], count + 1), expected) << "row " << r;
    TakeBack(from[r], count);
  }
  args.num_rows = 0;
  EXPECT_EQ(CudaLaunchRows(&driver_, &kernels_, scale, &args, stream_), 0);
}

}  // namespace
}  // namespace covey
