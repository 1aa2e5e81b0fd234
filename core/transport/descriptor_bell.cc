#include "core/transport/descriptor_bell.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace covey {

DescriptorBell::DescriptorBell(int descriptor, std::function<void()> ring)
    : descriptor_(descriptor), ring_(std::move(ring)) {}

Status DescriptorBell::Open(int descriptor, std::function<void()> ring,
                            std::unique_ptr<DescriptorBell>* bell) {
  std::unique_ptr<DescriptorBell> opened(new DescriptorBell(descriptor, std::move(ring)));
  opened->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  opened->end_ = eventfd(0, EFD_CLOEXEC);
  epoll_event end{.events = EPOLLIN, .data = {.fd = opened->end_}};
  epoll_event watched{.events = EPOLLONESHOT, .data = {.fd = descriptor}};
  if (opened->epoll_ < 0 || opened->end_ < 0 ||
      epoll_ctl(opened->epoll_, EPOLL_CTL_ADD, opened->end_, &end) != 0 ||
      epoll_ctl(opened->epoll_, EPOLL_CTL_ADD, descriptor, &watched) != 0)
    return Status::Exhausted("cannot watch the network's descriptor: " + ErrnoText(errno));
  opened->thread_ = std::thread([it = opened.get()] { it->Run(); });
  *bell = std::move(opened);
  return Status::Ok();
}

DescriptorBell::~DescriptorBell() {
  if (thread_.joinable()) {
    eventfd_write(end_, 1);
    thread_.join();
  }
  if (epoll_ >= 0) close(epoll_);
  if (end_ >= 0) close(end_);
}

// Dekker with Run: either this finds the bell disarmed, or `ring` sees what was stored before Arm.
void DescriptorBell::Arm() {
  if (armed_.exchange(true)) return;
  epoll_event watched{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = descriptor_}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor_, &watched);
}

void DescriptorBell::Run() {
  for (;;) {
    epoll_event event{};
    if (epoll_wait(epoll_, &event, 1, -1) <= 0) continue;  // EINTR
    if (event.data.fd == end_) return;
    armed_.store(false);
    ring_();
  }
}

}  // namespace covey
