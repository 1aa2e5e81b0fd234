// Goal: every kernel computes, bit for bit, what the scalar reference computes, and touches nothing
// else. Method: sweeps over dtype, operator, scales, inputs, outputs, count, alignment, in place
// and streaming, with values chosen to hurt. That the reference is right: kernels_values_test.cc.
// Another seed: --gtest_random_seed=N.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/kernels.h"
#include "core/base/rng.h"

namespace covey {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                             DType::kU8,  DType::kI8,  DType::kI32, DType::kI64,
                             DType::kI16, DType::kU16, DType::kU32, DType::kU64};
constexpr Op kOps[] = {Op::kSum, Op::kMin, Op::kMax, Op::kProduct};
constexpr size_t kCounts[] = {0, 1, 3, 7, 8, 15, 16, 17, 63, 64, 65, 1000, 4099};
struct Scales {
  double pre, post;
  int32_t divisor;
};
constexpr Scales kScales[] = {{1, 1, 1}, {1, 1.0 / 3, 1}, {0.7, 1, 1}, {-1.5, 1e3, 7},
                              {1, 1, 3}, {1, 0.7, 4},     {1, 1, 8}};

uint64_t Seed() { return 1 + static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)); }

// The bits of one element: a third each of small ordinary values, arbitrary bits, and special ones.
uint64_t RandomElement(DType dtype, Rng& rng) {
  if (dtype > DType::kBF16 || rng.Next() % 3 == 0)
    return rng.Next();  // kBF16: the last floating type
  const bool special = rng.Next() % 2 == 0;
  const double ordinary = static_cast<double>(static_cast<int64_t>(rng.Next() % 8193) - 4096) / 512;
  const size_t pick = rng.Next() % 10;
  switch (dtype) {
    case DType::kF32: {
      constexpr uint32_t kSpecial[] = {0,          1U << 31,   1,          0x807fffff, 0x7f800000,
                                       0xff800000, 0x7fc00001, 0xffa00000, 0x7f7fffff, 0x00800000};
      return special ? kSpecial[pick] : std::bit_cast<uint32_t>(static_cast<float>(ordinary));
    }
    case DType::kF64: {
      constexpr uint64_t kSpecial[] = {0,
                                       1ULL << 63,
                                       1,
                                       0x800fffffffffffff,
                                       0x7ffULL << 52,
                                       0xfffULL << 52,
                                       0x7ff8000000000001,
                                       0xfff4000000000000,
                                       0x7fefffffffffffff,
                                       1ULL << 52};
      return special ? kSpecial[pick] : std::bit_cast<uint64_t>(ordinary);
    }
    case DType::kF16: {
      constexpr uint16_t kSpecial[] = {0,      0x8000, 1,      0x83ff, 0x7c00,
                                       0xfc00, 0x7e01, 0xfd00, 0x7bff, 0x0400};
      return special ? kSpecial[pick] : 0x3800 + rng.Next() % 2048;
    }
    default: {
      constexpr uint16_t kSpecial[] = {0,      0x8000, 1,      0x807f, 0x7f80,
                                       0xff80, 0x7fc1, 0xffa0, 0x7f7f, 0x0080};
      return special ? kSpecial[pick] : 0x3f00 + rng.Next() % 512;
    }
  }
}

void FillRandom(DType dtype, size_t count, std::byte* to, Rng& rng) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = RandomElement(dtype, rng);
    std::memcpy(to + i * SizeOf(dtype), &bits, SizeOf(dtype));
  }
}

// `length` bytes `offset` beyond an alignment of 64, between two guards of 64 bytes.
class Buffer {
 public:
  Buffer(size_t length, size_t offset)
      : bytes_(length + offset + 3 * kGuard, std::byte{0xa5}), offset_(offset) {}
  std::byte* data() { return bytes_.data() + Start(); }
  // Equal content, guards included, of two buffers made with equal arguments.
  static bool SameContent(const Buffer& a, const Buffer& b, size_t length) {
    return std::memcmp(a.bytes_.data() + a.Start() - kGuard, b.bytes_.data() + b.Start() - kGuard,
                       length + 2 * kGuard) == 0;
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t Start() const {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return (kGuard - address % kGuard) % kGuard + kGuard + offset_;
  }
  Bytes bytes_;
  size_t offset_;
};

struct Case {
  Reduction reduction;
  size_t num_inputs;
  size_t num_outputs;
  size_t count;
  size_t offset_bytes;
  bool in_place;
  Stores stores;

  std::string ToString() const {
    return std::string(NameOf(reduction.dtype)) + " " + NameOf(reduction.op) + " pre " +
           std::to_string(reduction.prescale) + " post " + std::to_string(reduction.postscale) +
           " divisor " + std::to_string(reduction.divisor) + " inputs " +
           std::to_string(num_inputs) + " outputs " + std::to_string(num_outputs) + " count " +
           std::to_string(count) + " offset " + std::to_string(offset_bytes) +
           (in_place ? " in place" : "") + (stores == Stores::kStreaming ? " streaming" : "") +
           " seed " + std::to_string(Seed());
  }
};

// The outputs of one kernel. In place: the last output is the last input.
std::vector<Buffer> RunCase(const Kernels& kernels, const Case& c,
                            const std::vector<Bytes>& values) {
  const size_t length = c.count * SizeOf(c.reduction.dtype);
  std::vector<Buffer> buffers(c.num_outputs, Buffer(length, c.offset_bytes));
  std::vector<std::byte*> outputs;
  for (Buffer& buffer : buffers) outputs.push_back(buffer.data());
  std::vector<const std::byte*> inputs;
  for (const Bytes& value : values) inputs.push_back(value.data() + c.offset_bytes);
  if (c.in_place) {
    if (length != 0) std::memcpy(outputs.back(), inputs.back(), length);
    inputs.back() = outputs.back();
  }
  kernels.reduce(c.reduction, inputs, outputs, c.count, c.stores);
  return buffers;
}

void CompareWithScalar(const Case& c, Rng& rng) {
  const size_t length = c.count * SizeOf(c.reduction.dtype);
  std::vector<Bytes> values(c.num_inputs, Bytes(length + c.offset_bytes + 1));
  for (Bytes& value : values) {
    FillRandom(c.reduction.dtype, c.count, value.data() + c.offset_bytes, rng);
  }
  const std::vector<Buffer> expected = RunCase(ScalarKernels(), c, values);
  for (const Kernels* kernels : AllKernels()) {
    const std::vector<Buffer> actual = RunCase(*kernels, c, values);
    for (size_t k = 0; k < c.num_outputs; ++k) {
      ASSERT_TRUE(Buffer::SameContent(actual[k], expected[k], length))
          << kernels->name << " output " << k << ": " << c.ToString();
    }
  }
}

class KernelsOfDType : public testing::TestWithParam<DType> {};

TEST_P(KernelsOfDType, ReduceEqualsScalar) {
  Rng rng(Seed());
  const size_t size = SizeOf(GetParam());
  size_t turn = 0;
  for (Op op : kOps) {
    for (Scales scales : kScales) {
      for (size_t num_inputs = 1; num_inputs <= 5; ++num_inputs) {
        for (size_t count : kCounts) {
          for (unsigned bits = 0; bits < 8; ++bits) {
            const size_t offset_bytes = (bits & 1) != 0 ? size * (1 + turn % 3) : 0;
            const Case c = {{GetParam(), op, scales.pre, scales.post, scales.divisor},
                            num_inputs,
                            1 + turn++ % 3,
                            count,
                            offset_bytes,
                            (bits & 2) != 0,
                            (bits & 4) != 0 ? Stores::kStreaming : Stores::kCached};
            ASSERT_NO_FATAL_FAILURE(CompareWithScalar(c, rng));
          }
        }
      }
    }
  }
}

// No collective hands such memory in, but a wrong result would be a poor answer to it.
TEST_P(KernelsOfDType, ReduceOfMemoryNotAlignedToItsElements) {
  Rng rng(Seed());
  for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
    for (size_t count : kCounts) {
      CompareWithScalar({{GetParam(), Op::kSum, 1, 1}, 2, 2, count, 1, false, stores}, rng);
    }
  }
}

TEST_P(KernelsOfDType, ReduceOfManyInputsEqualsScalar) {
  Rng rng(Seed());
  for (size_t num_inputs : {8, 33, 100}) {
    for (Op op : kOps) {
      CompareWithScalar({{GetParam(), op, 1, 1}, num_inputs, 1, 99, 0, true, Stores::kCached}, rng);
    }
  }
}

void CompareHopsWithReduce(const Kernels& kernels, const Case& c, Rng& rng) {
  const size_t size = SizeOf(c.reduction.dtype);
  const size_t acc_size = SizeOf(AccumulatorOf(c.reduction.dtype));
  std::vector<Bytes> values(c.num_inputs, Bytes(c.count * size + c.offset_bytes + 1));
  for (Bytes& value : values) {
    FillRandom(c.reduction.dtype, c.count, value.data() + c.offset_bytes, rng);
  }
  const std::vector<Buffer> expected = RunCase(kernels, c, values);
  Buffer acc(c.count * acc_size, c.offset_bytes / size * acc_size);
  Buffer output(c.count * size, c.offset_bytes);
  kernels.begin(c.reduction, values[0].data() + c.offset_bytes, acc.data(), c.count);
  for (size_t k = 1; k < c.num_inputs; ++k) {
    kernels.add(c.reduction, values[k].data() + c.offset_bytes, acc.data(), c.count);
  }
  kernels.finish(c.reduction, acc.data(), output.data(), c.count);
  const bool same = Buffer::SameContent(output, expected[0], c.count * size);
  ASSERT_TRUE(same) << kernels.name << " hops: " << c.ToString();
}

TEST_P(KernelsOfDType, HopsEqualReduce) {
  Rng rng(Seed());
  for (Op op : kOps) {
    for (Scales scales : kScales) {
      for (size_t num_inputs = 1; num_inputs <= 5; ++num_inputs) {
        for (size_t count : kCounts) {
          const Case c = {{GetParam(), op, scales.pre, scales.post, scales.divisor},
                          num_inputs,
                          1,
                          count,
                          count % 2 * SizeOf(GetParam()),
                          false,
                          Stores::kCached};
          for (const Kernels* kernels : AllKernels()) {
            ASSERT_NO_FATAL_FAILURE(CompareHopsWithReduce(*kernels, c, rng));
          }
        }
      }
    }
  }
}

std::string NameOfParam(const testing::TestParamInfo<DType>& info) { return NameOf(info.param); }
INSTANTIATE_TEST_SUITE_P(DTypes, KernelsOfDType, testing::ValuesIn(kDTypes), NameOfParam);

TEST(Kernels, CopyMovesExactlyTheBytesGiven) {
  Rng rng(Seed());
  for (const Kernels* k : AllKernels()) {
    for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
      for (size_t length : kCounts) {
        for (size_t offset : {0, 1, 5, 32}) {
          Bytes source(length + 1);
          FillRandom(DType::kU8, length, source.data(), rng);
          Buffer expected(length, offset);
          Buffer actual(length, offset);
          if (length != 0) std::memcpy(expected.data(), source.data(), length);
          k->copy(actual.data(), source.data(), length, stores);
          ASSERT_TRUE(Buffer::SameContent(actual, expected, length))
              << k->name << " length " << length << " offset " << offset << " seed " << Seed();
        }
      }
    }
  }
}

TEST(Kernels, BestIsTheLastOfAllAndScalarTheFirst) {
  EXPECT_EQ(AllKernels().front(), &ScalarKernels());
  EXPECT_EQ(AllKernels().back(), &BestKernels());
  EXPECT_STREQ(ScalarKernels().name, "scalar");
}

}  // namespace
}  // namespace covey
