// The vocabulary every folder shares: ranks, element types, reduction operators, time.
//
// Plain values, no behaviour beyond naming and sizing. The numeric values of DType and Op are
// part of the C API and of the wire format: append, never renumber (c_api.cc asserts that covey.h
// agrees).
#ifndef COVEY_CORE_BASE_TYPES_H_
#define COVEY_CORE_BASE_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace covey {

// A member of the job, 0..size-1. A GroupIndex is a position in a group's ascending member list.
// The two never convert silently.
enum class Rank : int32_t {};
enum class GroupIndex : int32_t {};
constexpr int32_t ToInt(Rank r) { return static_cast<int32_t>(r); }
constexpr int32_t ToInt(GroupIndex i) { return static_cast<int32_t>(i); }
inline constexpr Rank kNoRank{-1};

// Nanoseconds on a monotonic clock (virtual in the simulator). Always passed in, never asked for.
using Time = int64_t;
inline constexpr Time kNever = INT64_MAX;
inline constexpr Time kMicrosecond = 1000;
inline constexpr Time kMillisecond = 1000 * kMicrosecond;
inline constexpr Time kSecond = 1000 * kMillisecond;

enum class DType : uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kU8,
  kI8,
  kI32,
  kI64,
  kBool,
  kI16,
  kU16,
  kU32,
  kU64
};
inline constexpr int kNumDTypes = 13;
// Whether kernels of devices (ops/devices) and NCCL reduce it; else the host does.
constexpr bool IsReducedByDevices(DType t) { return t < DType::kBool; }

// The operator of a reduction; Average is Sum with a divisor and does not reach the kernels.
enum class Op : uint8_t { kSum, kAverage, kMin, kMax, kProduct };
inline constexpr int kNumOps = 5;

enum class DeviceType : uint8_t { kCpu, kCuda, kFake };

constexpr size_t SizeOf(DType t) {
  constexpr size_t kSizes[kNumDTypes] = {4, 8, 2, 2, 1, 1, 4, 8, 1, 2, 2, 4, 8};
  return kSizes[static_cast<int>(t)];
}

constexpr bool IsFloating(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kF16 || t == DType::kBF16;
}
// The type in which partial results of a reduction are kept: half precision sums in float and
// rounds once.
constexpr DType AccumulatorOf(DType t) {
  return t == DType::kF16 || t == DType::kBF16 ? DType::kF32 : t;
}

const char* NameOf(DType t);  // "float32"
const char* NameOf(Op op);    // "average"

}  // namespace covey
#endif  // COVEY_CORE_BASE_TYPES_H_
