// aarch64. See processor.h, which includes this file.
#ifndef COVEY_CORE_BASE_PROCESSOR_AARCH64_H_
#define COVEY_CORE_BASE_PROCESSOR_AARCH64_H_

#include <string_view>

namespace covey {

// Between two looks of a loop at a word that another core writes. `yield` costs nothing on most
// cores, so that a loop with it would look as often as one without; `isb` takes tens of cycles.
inline void Pause() { asm volatile("isb" ::: "memory"); }

// Runs `loop`. Every processor has NEON, so a loop is compiled for it once.
template <typename Loop>
void RunInSet(std::string_view /*set*/, const Loop& loop) {
  loop();
}

}  // namespace covey
#endif  // COVEY_CORE_BASE_PROCESSOR_AARCH64_H_
