#include "ops/transports/shm_watch.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace covey {

ProcessId OwnProcess() {
  struct stat info {};
  const bool known = stat("/proc/self/ns/pid", &info) == 0;
  return {.pid = getpid(), .name_space = known ? info.st_ino : 0};
}

ProcessWatch::ProcessWatch(int32_t size)
    : own_(OwnProcess()), watched_(static_cast<size_t>(size)) {}

ProcessWatch::~ProcessWatch() {
  for (const Watched& w : watched_)
    if (w.fd >= 0) close(w.fd);
}

void ProcessWatch::Watch(int32_t rank, ProcessId process) {
  Watched& w = watched_[static_cast<size_t>(rank)];
  if (w.pid == process.pid) return;
  Forget(rank);
  w.pid = process.pid;
  if (process.pid == own_.pid || process.name_space != own_.name_space) return;
  w.fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  w.gone = w.fd < 0 && errno == ESRCH;
}

void ProcessWatch::Forget(int32_t rank) {
  Watched& w = watched_[static_cast<size_t>(rank)];
  if (w.fd >= 0) close(w.fd);
  w = {};
}

std::vector<int32_t> ProcessWatch::Gone() {
  std::vector<pollfd> polled;
  for (const Watched& w : watched_) polled.push_back({w.fd, POLLIN, 0});  // negative: passed over
  if (poll(polled.data(), polled.size(), 0) < 0) polled.assign(polled.size(), {-1, 0, 0});
  std::vector<int32_t> gone;
  for (size_t r = 0; r < watched_.size(); ++r)
    if (watched_[r].gone || (polled[r].revents & POLLIN) != 0)
      gone.push_back(static_cast<int32_t>(r));
  return gone;
}

bool ProcessWatch::IsGone(int32_t rank) const {
  const Watched& w = watched_[static_cast<size_t>(rank)];
  pollfd polled{w.fd, POLLIN, 0};
  return w.gone || (poll(&polled, 1, 0) > 0 && (polled.revents & POLLIN) != 0);
}

}  // namespace covey
