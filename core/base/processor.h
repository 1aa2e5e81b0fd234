// Differences between processors outside ops/kernels, from the file of the target processor.
// The only condition of the preprocessor on a processor in core and ops.
#ifndef COVEY_CORE_BASE_PROCESSOR_H_
#define COVEY_CORE_BASE_PROCESSOR_H_

#if defined(__aarch64__)
#include "core/base/processor_aarch64.h"
#else
#include "core/base/processor_x86_64.h"
#endif

#endif  // COVEY_CORE_BASE_PROCESSOR_H_
