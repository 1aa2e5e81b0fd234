#include "ops/transports/tcp/poller.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace covey::tcp {
namespace {

constexpr uint64_t kTimer = UINT64_MAX;

epoll_event Event(uint64_t key, bool writes, bool reads) {
  epoll_event event{};
  if (reads) event.events |= EPOLLIN;
  if (writes) event.events |= EPOLLOUT;
  event.data.u64 = key;
  return event;
}

}  // namespace

Poller::Poller()
    : fd_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (is_sound()) Add(timer_, kTimer);
}

Poller::~Poller() {
  if (fd_ >= 0) close(fd_);
  if (timer_ >= 0) close(timer_);
}

void Poller::Add(int fd, uint64_t key, bool writes) {
  epoll_event event = Event(key, writes, true);
  epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event);
}

void Poller::Watch(int fd, uint64_t key, bool writes, bool reads) {
  epoll_event event = Event(key, writes, reads);
  epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event);
}

void Poller::Remove(int fd) { epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr); }

// Setting the timer also takes back that it has run out.
void Poller::WakeAt(Time when) {
  if (when == wake_) return;
  wake_ = when;
  itimerspec spec{};
  if (when != kNever) {
    const Time at = std::max<Time>(when, 1);  // 0 would switch it off
    spec.it_value.tv_sec = at / kSecond;
    spec.it_value.tv_nsec = at % kSecond;
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

std::span<const uint64_t> Poller::Ready(bool waits) {
  epoll_event events[kMost];
  const int count = epoll_wait(fd_, events, kMost, waits ? -1 : 0);
  size_t kept = 0;
  for (int i = 0; i < count; ++i)
    if (events[i].data.u64 != kTimer) keys_[kept++] = events[i].data.u64;
  return {keys_.data(), kept};
}

}  // namespace covey::tcp
