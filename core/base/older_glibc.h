// Functions that glibc 2.28 (RHEL 8 and its relatives) does not have, for libcovey.so and plug-ins.
//
// Functions of a newer glibc, defined in older_glibc.cc under the same names, hidden:
//   __libc_single_threaded (2.32)   never true: counters are atomic
//   stat, lstat, fstat (2.33)       the system calls
//   pthread_cond_clockwait (2.30)   glibc's own where it has one, else WaitByWallClock
// Functions that are there under an older version come from tools/bazel/glibc. Any thread.
#ifndef COVEY_CORE_BASE_OLDER_GLIBC_H_
#define COVEY_CORE_BASE_OLDER_GLIBC_H_

#include <pthread.h>
#include <time.h>

namespace covey {

// As pthread_cond_clockwait (see its manual), by pthread_cond_timedwait: a step of the wall clock
// during the wait lengthens or shortens it. 0, or an error number.
int WaitByWallClock(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                    const timespec* deadline);

}  // namespace covey
#endif  // COVEY_CORE_BASE_OLDER_GLIBC_H_
