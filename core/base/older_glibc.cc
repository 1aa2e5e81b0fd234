#include "core/base/older_glibc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace covey {
namespace {

constexpr long kNsPerSecond = 1000 * 1000 * 1000;

using ClockWait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

// The one below is hidden, so a search by name does not find it.
ClockWait FindClockWait() {
  void* found = dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  return found != nullptr ? reinterpret_cast<ClockWait>(found) : WaitByWallClock;
}

int StatAt(const char* path, struct stat* result, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, result, flags));
}

}  // namespace

int WaitByWallClock(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                    const timespec* deadline) {
  timespec now;
  timespec wall;
  if (clock_gettime(clock, &now) != 0) return EINVAL;
  clock_gettime(CLOCK_REALTIME, &wall);
  timespec until = {wall.tv_sec + (deadline->tv_sec - now.tv_sec),
                    wall.tv_nsec + (deadline->tv_nsec - now.tv_nsec)};
  if (until.tv_nsec < 0) {
    until.tv_nsec += kNsPerSecond;
    --until.tv_sec;
  } else if (until.tv_nsec >= kNsPerSecond) {
    until.tv_nsec -= kNsPerSecond;
    ++until.tv_sec;
  }
  // Long past: pthread_cond_timedwait takes no time before 1970.
  if (until.tv_sec < 0) until = {0, 0};
  return pthread_cond_timedwait(condition, mutex, &until);
}

}  // namespace covey

extern "C" {

extern const char __libc_single_threaded;
const char __libc_single_threaded = 0;

int stat(const char* path, struct stat* result) noexcept { return covey::StatAt(path, result, 0); }

int lstat(const char* path, struct stat* result) noexcept {
  return covey::StatAt(path, result, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat* result) noexcept {
  return static_cast<int>(syscall(SYS_fstat, fd, result));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  static const covey::ClockWait wait = covey::FindClockWait();
  return wait(condition, mutex, clock, deadline);
}
}
