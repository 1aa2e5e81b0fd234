// The name of a thread, as `top -H`, `perf` and debuggers show it.
#ifndef COVEY_CORE_BASE_THREAD_NAME_H_
#define COVEY_CORE_BASE_THREAD_NAME_H_

#include <sys/prctl.h>

#include <cstddef>

namespace covey {

// Names the calling thread. The system keeps 15 characters.
template <size_t kLength>
void NameThread(const char (&name)[kLength]) {
  static_assert(kLength <= 16);
  prctl(PR_SET_NAME, name);
}

}  // namespace covey
#endif  // COVEY_CORE_BASE_THREAD_NAME_H_
