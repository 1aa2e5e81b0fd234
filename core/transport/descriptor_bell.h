// Rings when a descriptor is readable: for sleepers that sleep at something else.
//
// A thread of its own waits in epoll_wait. Arm() wakes no thread, and costs a call of the kernel
// only if the bell has rung since the last one. The bell rings once for it, at once if the
// descriptor is readable already.
#ifndef COVEY_CORE_TRANSPORT_DESCRIPTOR_BELL_H_
#define COVEY_CORE_TRANSPORT_DESCRIPTOR_BELL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "core/base/status.h"

namespace covey {

class DescriptorBell {
 public:
  // `ring` is called by the bell's thread until the destructor returns. The descriptor outlives it.
  static Status Open(int descriptor, std::function<void()> ring,
                     std::unique_ptr<DescriptorBell>* bell);
  ~DescriptorBell();

  void Arm();  // any thread

 private:
  DescriptorBell(int descriptor, std::function<void()> ring);
  void Run();

  const int descriptor_;
  const std::function<void()> ring_;
  int epoll_ = -1;
  int end_ = -1;  // eventfd: readable when the thread has to end
  std::atomic<bool> armed_{false};
  std::thread thread_;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_DESCRIPTOR_BELL_H_
