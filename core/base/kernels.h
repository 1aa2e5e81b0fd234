// Arithmetic on elements: the only place where a collective touches the values it moves.
//
// This is a table of functions, chosen once per runtime (best instruction set this processor has;
// `scalar` is the slow obvious reference). It is not a thread pool and allocates nothing. Any
// thread.
//
// Semantics, equal bit for bit for every implementation:
//  kernels-K1. Contributions are combined in the order given (rank order), one after the other, no
//      tree, no FMA.
//  kernels-K2. float16 and bfloat16 are combined in float32 and rounded once, to nearest even, NaN
//      stays NaN.
//  kernels-K3. Integer sums and products wrap. A scale other than 1 on integers multiplies in
//      float64 and truncates toward zero (values outside the type saturate, NaN gives 0). The
//      quotient by the divisor is that of integers, truncated toward zero.
//  kernels-K4. float32 scales by float32(scale), float64 by the float64 itself; float16/bfloat16 as
//      float32. The quotient by the divisor is the nearest one: not a product with its reciprocal,
//      which is off by a bit where the divisor is no power of two.
//  kernels-K5. min and max: if either operand is NaN the result is NaN. Of equal operands (0 and
//      -0) the later one.
//  kernels-K6. A NaN result is the quiet NaN without sign and payload: 0x7fc00000,
//      0x7ff8000000000000, 0x7e00, 0x7fc0.
#ifndef COVEY_CORE_BASE_KERNELS_H_
#define COVEY_CORE_BASE_KERNELS_H_

#include <cstddef>
#include <span>

#include "core/base/types.h"

namespace covey {

// REQUIRES: op is not kAverage (that is kSum with n as the divisor), dtype is not kBool, divisor is
// positive.
struct Reduction {
  DType dtype;
  Op op;
  double prescale = 1.0;   // applied to each contribution before it is combined
  double postscale = 1.0;  // applied to the combined value
  int32_t divisor = 1;     // divides what was scaled
};

// How results are stored: kStreaming bypasses the cache, for outputs larger than it.
enum class Stores : uint8_t { kCached, kStreaming };

struct Kernels {
  const char* name;  // "scalar", "sse4", "avx2", "avx512", "neon"

  // outputs[k][i] = post * (pre*inputs[0][i] op pre*inputs[1][i] op ...) / divisor, for every k,
  // i < count_elems. An output may be one of the inputs (same pointer), never overlap one partly.
  // inputs.size() >= 1. Alignment: that of the element type is enough.
  void (*reduce)(const Reduction&, std::span<const std::byte* const> inputs,
                 std::span<std::byte* const> outputs, size_t count_elems, Stores stores);

  // The same computation cut into hops, for algorithms that pass partial results on. `acc` holds
  // AccumulatorOf(dtype) elements.
  void (*begin)(const Reduction&, const std::byte* input, std::byte* acc,
                size_t count_elems);  // acc = pre*input
  void (*add)(const Reduction&, const std::byte* input, std::byte* acc,
              size_t count_elems);  // acc = acc op pre*input
  void (*finish)(const Reduction&, const std::byte* acc, std::byte* output,
                 size_t count_elems);  // output = post*acc / divisor

  void (*copy)(std::byte* dst, const std::byte* src, size_t length_bytes, Stores stores);
};

// The fastest implementation this processor can run. Pure: the answer never changes within a
// process.
const Kernels& BestKernels();
// The reference, and every implementation runnable here (for tests and `covey bench`).
const Kernels& ScalarKernels();
std::span<const Kernels* const> AllKernels();

}  // namespace covey
#endif  // COVEY_CORE_BASE_KERNELS_H_
