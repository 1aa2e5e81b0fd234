// Goal: the card's kernels compute what the scalar reference computes, for any number of threads,
// wherever tensors lie, and touch nothing else.
// Method: the loops of ops/devices/cuda/loops.h run by the host thread after thread, under the
// kernels' names. Another seed: --gtest_random_seed=N.
#include "ops/devices/cuda/loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/base/kernels.h"
#include "tests/plugins/driver/host_kernels.h"

namespace covey {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                             DType::kU8,  DType::kI8,  DType::kI32, DType::kI64};
constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr Op kOps[] = {Op::kSum, Op::kMin, Op::kMax, Op::kProduct};
constexpr size_t kCounts[] = {0, 1, 3, 16, 17, 63, 257};
constexpr uint64_t kThreads[] = {1, 3, 64};
struct Scales {
  double pre, post;
  int32_t divisor;
};
constexpr Scales kScales[] = {{1, 1, 1}, {1, 1.0 / 3, 1}, {0.7, 1, 1}, {-1.5, 1e3, 1}, {1, 1, 3}};

uint32_t Seed() { return static_cast<uint32_t>(GTEST_FLAG_GET(random_seed)) + 1; }

// Random elements between guards, `offset` bytes beyond a multiple of 64.
class Memory {
 public:
  Memory(DType dtype, size_t count, size_t offset, std::mt19937_64& rng)
      : bytes_(count * SizeOf(dtype) + offset + 4 * kGuard) {
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(rng());
    start_ = kGuard + (kGuard - reinterpret_cast<uintptr_t>(bytes_.data()) % kGuard) + offset;
    // Arbitrary bits are rarely near each other: every other float is between 1 and 2.
    if (dtype == DType::kF32)
      for (size_t i = 0; i < count; i += 2) {
        const uint32_t bits = 0x3f800000u | static_cast<uint32_t>(rng() & 0x807fffff);
        std::memcpy(data() + i * sizeof(bits), &bits, sizeof(bits));
      }
  }
  std::byte* data() { return bytes_.data() + start_; }
  uint64_t address() { return reinterpret_cast<uint64_t>(data()); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  // As if it lay at the same place: the content with its guards.
  void CopyFrom(const Memory& other) {
    const size_t length = std::min(bytes_.size() - start_, other.bytes_.size() - other.start_);
    std::memcpy(data() - kGuard, other.bytes_.data() + other.start_ - kGuard, length);
  }
  bool IsLike(const Memory& other, size_t length) const {
    return std::memcmp(bytes_.data() + start_ - kGuard, other.bytes_.data() + other.start_ - kGuard,
                       length + 2 * kGuard) == 0;
  }

 private:
  static constexpr size_t kGuard = 64;
  std::vector<std::byte> bytes_;
  size_t start_;
};

using Memories = std::vector<Memory>;

Memories MakeMemories(size_t count, DType dtype, size_t elems, size_t offset,
                      std::mt19937_64& rng) {
  Memories made;
  for (size_t i = 0; i < count; ++i) made.emplace_back(dtype, elems, offset, rng);
  return made;
}

const HostKernel& Find(const std::string& name) {
  const HostKernel* found = FindHostKernel(name);
  EXPECT_NE(found, nullptr) << name;
  return *found;
}

struct Shape {
  size_t num_inputs;
  size_t count;
  size_t offset;
  uint64_t threads;
};

// The first input is an output too, and there is another.
void ExpectReduced(const Reduction& r, const Shape& shape, std::mt19937_64& rng) {
  Memories in = MakeMemories(shape.num_inputs, r.dtype, shape.count, shape.offset, rng);
  Memory out(r.dtype, shape.count, shape.offset, rng);
  Memories in_expected = MakeMemories(shape.num_inputs, r.dtype, shape.count, shape.offset, rng);
  Memory expected(r.dtype, shape.count, shape.offset, rng);
  expected.CopyFrom(out);
  CudaReduceArgs args = {};
  std::vector<const std::byte*> inputs;
  for (size_t k = 0; k < shape.num_inputs; ++k) {
    in_expected[k].CopyFrom(in[k]);
    args.inputs[k] = in[k].address();
    inputs.push_back(in_expected[k].data());
  }
  args.outputs[0] = in[0].address();
  args.outputs[1] = out.address();
  args.count_elems = shape.count;
  args.prescale = r.prescale;
  args.postscale = r.postscale;
  args.divisor = r.divisor;
  args.num_inputs = static_cast<uint32_t>(shape.num_inputs);
  args.num_outputs = 2;
  args.op = static_cast<uint32_t>(r.op);
  args.is_aligned = shape.offset % 16 == 0;
  const std::string name = std::string("covey_reduce_") + NameOf(r.dtype);
  const HostKernel& kernel = Find(name);
  for (uint64_t t = 0; t < shape.threads; ++t) kernel.reduce(args, t, shape.threads);

  const std::vector<std::byte*> outputs = {in_expected[0].data(), expected.data()};
  ScalarKernels().reduce(r, inputs, outputs, shape.count, Stores::kCached);
  const size_t length = shape.count * SizeOf(r.dtype);
  ASSERT_TRUE(out.IsLike(expected, length) && in[0].IsLike(in_expected[0], length))
      << NameOf(r.dtype) << " " << NameOf(r.op) << " of " << shape.num_inputs << " x "
      << shape.count << " at " << shape.offset << " by " << shape.threads << " threads, scaled by "
      << r.prescale << " and " << r.postscale << ", divided by " << r.divisor << ", seed "
      << Seed();
}

TEST(LoopsTest, ReducesInRankOrder) {
  std::mt19937_64 rng(Seed());
  for (const DType dtype : kDTypes)
    for (const Op op : kOps)
      for (const Scales& scales : kScales)
        for (const size_t count : kCounts)
          for (const uint64_t threads : kThreads) {
            const Reduction r = {dtype, op, scales.pre, scales.post, scales.divisor};
            const size_t offset = rng() % 2 == 0 ? 0 : SizeOf(dtype);
            ExpectReduced(r, {1 + rng() % 5, count, offset, threads}, rng);
            if (HasFatalFailure()) return;
          }
}

// Three tensors of one launch, the second empty, the third where quads do not fit.
struct Rows {
  Rows(DType from_dtype, DType to_dtype, size_t count, std::mt19937_64& rng) {
    const size_t counts[] = {count, 0, count + 5};
    for (uint32_t r = 0; r < 3; ++r) {
      from.emplace_back(from_dtype, counts[r], r == 2 ? SizeOf(from_dtype) : 0, rng);
      to.emplace_back(to_dtype, counts[r], r == 2 ? SizeOf(to_dtype) : 0, rng);
      expected.emplace_back(to_dtype, counts[r], r == 2 ? SizeOf(to_dtype) : 0, rng);
      expected[r].CopyFrom(to[r]);
    }
    for (uint32_t r = 0; r < 3; ++r) args.rows[r] = {to[r].address(), from[r].address(), counts[r]};
    args.num_rows = 3;
  }

  void Run(const std::string& name, uint64_t threads) const {
    const HostKernel& kernel = Find(name);
    for (uint32_t r = 0; r < args.num_rows; ++r)
      for (uint64_t t = 0; t < threads; ++t) kernel.row(args, r, t, threads);
  }
  // `reference(from, to, count)` computes a row of the expected.
  template <class F>
  void Expect(DType to_dtype, const std::string& name, const F& reference) {
    for (size_t r = 0; r < 3; ++r) {
      reference(from[r].data(), expected[r].data(), args.rows[r].count_elems);
      ASSERT_TRUE(to[r].IsLike(expected[r], args.rows[r].count_elems * SizeOf(to_dtype)))
          << name << " row " << r << " of " << args.rows[r].count_elems << ", scaled by "
          << args.scale << ", seed " << Seed();
    }
  }

  Memories from, to, expected;
  CudaRowsArgs args = {};
};

TEST(LoopsTest, AddsManyTensorsAtOnce) {
  std::mt19937_64 rng(Seed());
  for (const DType dtype : kDTypes)
    for (const Op op : kOps)
      for (const double scale : {1.0, 0.7})
        for (const size_t count : kCounts) {
          Rows rows(dtype, AccumulatorOf(dtype), count, rng);
          rows.args.op = static_cast<uint32_t>(op);
          rows.args.scale = scale;
          const std::string name = std::string("covey_add_") + NameOf(dtype);
          rows.Run(name, 1 + rng() % 40);
          const Reduction r = {dtype, op, scale, 1};
          rows.Expect(AccumulatorOf(dtype), name, [&](auto* from, auto* to, size_t elems) {
            ScalarKernels().add(r, from, to, elems);
          });
          if (HasFatalFailure()) return;
        }
}

TEST(LoopsTest, ScalesManyTensorsAtOnce) {
  std::mt19937_64 rng(Seed());
  for (const DType dtype : kDTypes)
    for (const double scale : {1.0, -1.0 / 3, 1e3})
      for (const size_t count : kCounts) {
        Rows rows(dtype, dtype, count, rng);
        rows.args.scale = scale;
        const std::string name = std::string("covey_scale_") + NameOf(dtype);
        rows.Run(name, 1 + rng() % 40);
        const Reduction r = {dtype, Op::kSum, 1, scale};
        rows.Expect(dtype, name, [&](const std::byte* from, std::byte* to, size_t elems) {
          ScalarKernels().reduce(r, {&from, 1}, {&to, 1}, elems, Stores::kCached);
        });
        if (HasFatalFailure()) return;
      }
}

// Through float32, as by a hop: rounded once.
TEST(LoopsTest, CastsManyTensorsAtOnce) {
  std::mt19937_64 rng(Seed());
  for (const DType from_dtype : kFloats)
    for (const DType to_dtype : kFloats)
      for (const double scale : {1.0, 0.3})
        for (const size_t count : kCounts) {
          if (from_dtype == to_dtype) continue;
          Rows rows(from_dtype, to_dtype, count, rng);
          rows.args.scale = scale;
          const std::string name =
              std::string("covey_cast_") + NameOf(from_dtype) + "_" + NameOf(to_dtype);
          rows.Run(name, 1 + rng() % 40);
          rows.Expect(to_dtype, name, [&](auto* from, auto* to, size_t elems) {
            std::vector<float> wide(elems);
            auto* acc = reinterpret_cast<std::byte*>(wide.data());
            ScalarKernels().begin({from_dtype, Op::kSum, scale, 1}, from, acc, elems);
            ScalarKernels().finish({to_dtype, Op::kSum, 1, 1}, acc, to, elems);
          });
          if (HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace covey
