// Chooses the kernels for aarch64: those of NEON.
//
// SVE has no kernels of its own. On Graviton 4 and Grace its vectors have 16 bytes, as NEON's have.
// Graviton 3 has four units of 16 bytes for NEON, and for SVE two of 32: as many bytes in a cycle.
#include "ops/kernels/table-inl.h"

namespace covey {
namespace {

constexpr Kernels kNeon = MakeKernels<kNeonLeaves>("neon");

}  // namespace

std::span<const Kernels* const> AllKernels() {
  static const Kernels* const kAll[] = {&ScalarKernels(), &kNeon};
  return kAll;
}

const Kernels& BestKernels() { return kNeon; }

}  // namespace covey
