// Chooses the best kernels that this processor runs.
//
// Compiled for every x86-64 processor: nothing here may need more than SSE2.
#include "ops/kernels/table-inl.h"

namespace covey {
namespace {

constexpr Kernels kSse4 = MakeKernels<kSse4Leaves>("sse4");
constexpr Kernels kAvx2 = MakeKernels<kAvx2Leaves>("avx2");
// Streams copies with 32-byte stores: 64 MiB at 11.5 GB/s, with 64-byte ones at 9.3 (a virtual
// machine on a Xeon with AMX, 2026-11).
constexpr Kernels kAvx512 = MakeKernels<kAvx512Leaves, kAvx2Leaves>("avx512");

bool RunsSse4() { return __builtin_cpu_supports("sse4.1"); }
bool RunsAvx2() {
  return RunsSse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}
bool RunsAvx512() {
  return RunsAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

std::span<const Kernels* const> AllKernels() {
  // Each runs only where the ones before it do.
  static const Kernels* const kAll[] = {&ScalarKernels(), &kSse4, &kAvx2, &kAvx512};
  const size_t count = RunsAvx512() ? 4 : RunsAvx2() ? 3 : RunsSse4() ? 2 : 1;
  return {kAll, count};
}

const Kernels& BestKernels() { return *AllKernels().back(); }

}  // namespace covey
