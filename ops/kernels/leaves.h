// The border between choosing a kernel (best_*.cc, any processor) and the loops of one instruction
// set (sse4.cc, avx2.cc, avx512.cc, neon.cc, each compiled with its own flags). Any thread.
//
// A leaf is one pass over memory with plain pointers. It does not know spans, statuses or the
// standard library: an inline function of the library that is compiled here could be the copy the
// linker keeps, and then a processor without this instruction set would meet it elsewhere.
#ifndef COVEY_OPS_KERNELS_LEAVES_H_
#define COVEY_OPS_KERNELS_LEAVES_H_

#include <cstddef>

#include "core/base/types.h"

namespace covey {

// The scaling of a leaf: kPost multiplies the combined value, kDivide divides it, kPre multiplies
// the inputs, kAll does all three. An average is kDivide; an average of 2^k ranks is kPost.
enum class Scaling : uint8_t { kNone, kPost, kDivide, kPre, kAll };
inline constexpr int kNumScalings = 5;

// outputs[k][i] = post * (first_scale*inputs[0][i] op rest_scale*inputs[1][i] op ...) / divisor
// Same aliasing rules as Kernels::reduce. REQUIRES: num_inputs >= 1, num_outputs >= 1.
struct Pass {
  const std::byte* const* inputs;
  size_t num_inputs;
  std::byte* const* outputs;
  size_t num_outputs;
  size_t count_elems;
  double first_scale;
  double rest_scale;
  double postscale;
  double divisor;
  bool streaming;
};
using Leaf = void (*)(const Pass&);

// Null where no leaf exists: bool, kAverage, integers with a scale (the scalar kernels do those).
struct Leaves {
  Leaf reduce[kNumDTypes][kNumOps][kNumScalings];
  // The hops of half precision, whose partial results are float32. For every other dtype a hop is
  // a reduce with one or two inputs.
  Leaf begin[kNumDTypes];         // input -> float32; scale them all
  Leaf add[kNumDTypes][kNumOps];  // float32, input -> float32
  Leaf finish[kNumDTypes];        // float32 -> output
  void (*stream_copy)(std::byte* dst, const std::byte* src, size_t length_bytes);
};

extern const Leaves kSse4Leaves;
extern const Leaves kAvx2Leaves;
extern const Leaves kAvx512Leaves;
extern const Leaves kNeonLeaves;

}  // namespace covey
#endif  // COVEY_OPS_KERNELS_LEAVES_H_
