// How a thread waits for other ranks: it looks at once for a while, then lets others of its core
// run before each look, and then it is to sleep until it is woken.
//
// Waking a sleeper takes some microseconds, and a thread that spins keeps the core from the threads
// that it waits for. One thread, for one wait.
#ifndef COVEY_CORE_BASE_WAITER_H_
#define COVEY_CORE_BASE_WAITER_H_

#include <sched.h>

#include "core/base/processor.h"
#include "core/base/types.h"

namespace covey {

struct WaitPolicy {
  Time spin = 0;                 // looks at once for so long; 0 where cores are fewer than ranks
  int yields = 0;                // then looks so many times after a yield,
  Time yield = 0;                // and for so long since the wait began
  Time longest_sleep = kSecond;  // then sleeps: a peer that is stopped, or has died, does not ring
};

class Waiter {
 public:
  explicit Waiter(const WaitPolicy& policy) : policy_(policy) {}

  // After a look, at `now`: whether to look again before sleeping. It has let others run as is due.
  // `moved`: the look has found something to do; then the wait begins anew.
  bool LooksAgain(bool moved, Time now) {
    if (moved) {
      idle_since_ = 0;
      yielded_ = 0;
      return true;
    }
    if (idle_since_ == 0) idle_since_ = now;
    if (now - idle_since_ < policy_.spin) {
      Pause();
      return true;
    }
    if (yielded_ >= policy_.yields && now - idle_since_ >= policy_.yield) return false;
    ++yielded_;
    sched_yield();
    return true;
  }

 private:
  const WaitPolicy policy_;
  Time idle_since_ = 0;  // 0: it is not
  int yielded_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_WAITER_H_
