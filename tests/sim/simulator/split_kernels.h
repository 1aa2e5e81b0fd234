// Arithmetic that stops in the middle of a copy and of a sum and lets others go on: where a stop of
// a rank hurts most. One simulation at a time.
#ifndef COVEY_TESTS_SIM_SIMULATOR_SPLIT_KERNELS_H_
#define COVEY_TESTS_SIM_SIMULATOR_SPLIT_KERNELS_H_

#include <functional>

#include "core/base/kernels.h"

namespace covey {

// The function called in the middle from now on; none when null.
void OnWorkDo(std::function<void()> what);

// Half a copy, that, the other half.
void CopyInHalves(std::byte* to, const std::byte* from, size_t length_bytes, Stores stores);

// With such copies and sums.
const Kernels& SplitKernels();

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_SPLIT_KERNELS_H_
