// Rings when a descriptor is readable: for sleepers that sleep at something else.
//
// A thread of its own polls it. Arm() wakes no thread; the bell rings once for it, at once if the
// descriptor is readable already (core/transport/one_shot.h).
#ifndef COVEY_CORE_TRANSPORT_DESCRIPTOR_BELL_H_
#define COVEY_CORE_TRANSPORT_DESCRIPTOR_BELL_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/base/status.h"
#include "core/transport/one_shot.h"

namespace covey {

class DescriptorBell {
 public:
  // `ring` is called by the bell's thread until the destructor returns. The descriptor outlives it.
  static Status Open(int descriptor, std::function<void()> ring,
                     std::unique_ptr<DescriptorBell>* bell);
  ~DescriptorBell();

  void Arm() { watched_.Arm(); }  // any thread

 private:
  explicit DescriptorBell(std::function<void()> ring) : ring_(std::move(ring)) {}
  void Run();

  const std::function<void()> ring_;
  OneShot watched_;
  int end_ = -1;  // eventfd: readable when the thread has to end
  std::thread thread_;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_DESCRIPTOR_BELL_H_
