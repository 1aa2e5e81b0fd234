// x86-64. See processor.h, which includes this file.
#ifndef COVEY_CORE_BASE_PROCESSOR_X86_64_H_
#define COVEY_CORE_BASE_PROCESSOR_X86_64_H_

#include <string_view>

namespace covey {

// Between two looks of a loop at a word that another core writes.
inline void Pause() { __builtin_ia32_pause(); }

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

// Runs `loop` as compiled for the instruction set of this name (kernels.h).
template <typename Loop>
void RunInSet(std::string_view set, const Loop& loop) {
  if (set == "avx512") return RunAvx512(loop);
  if (set == "avx2") return RunAvx2(loop);
  loop();
}

}  // namespace covey
#endif  // COVEY_CORE_BASE_PROCESSOR_X86_64_H_
