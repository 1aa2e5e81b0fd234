// Runs a plain loop as compiled for the instruction set that the kernels name. The loop rounds each
// operation once, whatever the set, so all make the same bits (codec-D1).
#ifndef COVEY_OPS_CODECS_SETS_H_
#define COVEY_OPS_CODECS_SETS_H_

#include <string_view>

#include "core/base/kernels.h"

namespace covey {

template <typename Loop>
[[gnu::target("avx2")]] inline void RunAvx2(const Loop& loop) {
  loop();
}
template <typename Loop>
[[gnu::target(
    "avx512f,avx512bw,avx512dq,avx512vl,"
    "prefer-vector-width=512")]] inline void
RunAvx512(const Loop& loop) {
  loop();
}

// `loop` and all it calls have to be inlined, else they are what they are everywhere:
// `[&]() __attribute__((always_inline)) { ... }`.
template <typename Loop>
void RunOn(const Kernels& kernels, const Loop& loop) {
  const std::string_view set = kernels.name;
  if (set == "avx512") return RunAvx512(loop);
  if (set == "avx2") return RunAvx2(loop);
  loop();
}

}  // namespace covey
#endif  // COVEY_OPS_CODECS_SETS_H_
