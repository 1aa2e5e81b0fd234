// Freed memory that stays with the process for its next allocations.
#ifndef COVEY_CORE_BASE_KEEP_FREED_H_
#define COVEY_CORE_BASE_KEEP_FREED_H_

#include <cstddef>

namespace covey {

// Pieces of up to `most_bytes` of it, from now on, in the whole process. 0: changes nothing. It
// tells glibc's allocator; another one takes no notice.
//
// A step of training frees its gradients, and allocates as many in the next one. By glibc's own
// rule such memory goes back to the kernel in between, and each page of it costs a fault when it
// comes back: a fifth of the time of a ResNet-18 step (examples/guide/benchmarks.md).
void KeepFreedMemory(size_t most_bytes);

}  // namespace covey
#endif  // COVEY_CORE_BASE_KEEP_FREED_H_
