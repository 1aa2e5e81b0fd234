#include "core/replicated/channel_waiters.h"

namespace covey {
namespace {

Status Stopped() { return Status::Aborted("this rank is shutting down"); }

}  // namespace

Status ChannelWaiters::Await(const ChannelDriver& driver, const Done& done, Time deadline) {
  std::atomic<bool> ended{false};
  {
    const std::lock_guard lock(*mutex_);
    if (done()) return Status::Ok();
    if (is_stopped_) return Stopped();
    waiters_.push_back({&done, &ended});
  }
  driver.drive(ended, deadline);
  const std::lock_guard lock(*mutex_);
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.ended == &ended; });
  if (is_stopped_) return Stopped();
  if (ended.load()) return Status::Ok();
  return Status::Timeout("the deadline is over");
}

bool ChannelWaiters::Check() {
  bool any = false;
  for (const Waiter& waiter : waiters_) {
    if (waiter.ended->load() || !(*waiter.done)()) continue;
    waiter.ended->store(true);
    any = true;
  }
  return any;
}

void ChannelWaiters::Interrupt() {
  is_stopped_ = true;
  for (const Waiter& waiter : waiters_) waiter.ended->store(true);
}

}  // namespace covey
