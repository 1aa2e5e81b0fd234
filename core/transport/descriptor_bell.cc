#include "core/transport/descriptor_bell.h"
#include "core/base/thread_name.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace covey {

Status DescriptorBell::Open(int descriptor, std::function<void()> ring,
                            std::unique_ptr<DescriptorBell>* bell) {
  std::unique_ptr<DescriptorBell> opened(new DescriptorBell(std::move(ring)));
  RETURN_IF_ERROR(opened->watched_.Open(descriptor));
  opened->end_ = eventfd(0, EFD_CLOEXEC);
  if (opened->end_ < 0) return Status::Exhausted("no descriptor: " + ErrnoText(errno));
  opened->thread_ = std::thread([it = opened.get()] { it->Run(); });
  *bell = std::move(opened);
  return Status::Ok();
}

DescriptorBell::~DescriptorBell() {
  if (thread_.joinable()) {
    eventfd_write(end_, 1);
    thread_.join();
  }
  if (end_ >= 0) close(end_);
}

void DescriptorBell::Run() {
  NameThread("covey-bell");
  for (;;) {
    pollfd wakers[] = {{watched_.fd(), POLLIN, 0}, {end_, POLLIN, 0}};
    if (poll(wakers, 2, -1) <= 0) continue;  // EINTR
    if (wakers[1].revents != 0) return;
    watched_.Consume();
    ring_();
  }
}

}  // namespace covey
