// Runs a plain loop as compiled for the instruction set that the kernels name. The loop rounds each
// operation once, whatever the set, so all make the same bits (codec-D1).
#ifndef COVEY_OPS_CODECS_SETS_H_
#define COVEY_OPS_CODECS_SETS_H_

#include "core/base/kernels.h"
#include "core/base/processor.h"

namespace covey {

// `loop` and all it calls have to be inlined, else they are what they are everywhere:
// `[&]() __attribute__((always_inline)) { ... }`.
template <typename Loop>
void RunOn(const Kernels& kernels, const Loop& loop) {
  RunInSet(kernels.name, loop);
}

}  // namespace covey
#endif  // COVEY_OPS_CODECS_SETS_H_
