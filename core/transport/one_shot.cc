#include "core/transport/one_shot.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

namespace covey {

OneShot::~OneShot() {
  if (fd_ >= 0) close(fd_);
}

Status OneShot::Open(int watched) {
  watched_ = watched;
  fd_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLONESHOT, .data = {.fd = watched}};
  if (fd_ < 0 || epoll_ctl(fd_, EPOLL_CTL_ADD, watched, &event) != 0)
    return Status::Exhausted("cannot watch the network's descriptor: " + ErrnoText(errno));
  return Status::Ok();
}

void OneShot::Arm() {
  // transport-O1: either this finds it disarmed, or Consume acquires what was stored before.
  if (armed_.exchange(true)) return;
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = watched_}};
  epoll_ctl(fd_, EPOLL_CTL_MOD, watched_, &event);
}

void OneShot::Consume() {
  epoll_event event{};
  // transport-O1: an exchange: it reads that of an Arm without effect.
  if (epoll_wait(fd_, &event, 1, 0) == 1) armed_.exchange(false);
}

}  // namespace covey
