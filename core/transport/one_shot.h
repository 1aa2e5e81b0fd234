// A descriptor that is readable once, for one that stays readable until it is served: a thread that
// may not serve it is woken once, and does not spin.
//
// Arm and Consume: any thread; each of them by one thread at a time for a given effect.
#ifndef COVEY_CORE_TRANSPORT_ONE_SHOT_H_
#define COVEY_CORE_TRANSPORT_ONE_SHOT_H_

#include <atomic>

#include "core/base/status.h"

namespace covey {

class OneShot {
 public:
  OneShot() = default;
  ~OneShot();
  OneShot(const OneShot&) = delete;
  OneShot& operator=(const OneShot&) = delete;

  // `watched` outlives this.
  Status Open(int watched);
  bool is_open() const { return fd_ >= 0; }
  // For poll(2): readable once `watched` is, if armed since the last Consume.
  int fd() const { return fd_; }
  // Costs a call of the kernel only if it is not armed.
  void Arm();
  // After `fd` was readable: it is not any more, until armed. The caller sees the stores of
  // threads that came before an Arm without effect.
  void Consume();

 private:
  int watched_ = -1;
  int fd_ = -1;  // epoll
  std::atomic<bool> armed_{false};
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_ONE_SHOT_H_
