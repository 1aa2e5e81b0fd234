// Headers that stand before one_shot.cc in its case: an epoll that is a word of the execution. A
// call is a seq_cst fence and an access, as of a futex (tests/orders/execution.h).
//
// Included once, before one_shot.cc.
#ifndef COVEY_TESTS_ORDERS_ONE_SHOT_STAGE_H_
#define COVEY_TESTS_ORDERS_ONE_SHOT_STAGE_H_

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "core/transport/one_shot.h"
#include "tests/orders/execution.h"

namespace covey {

// The one descriptor: 1: readable. What it watches is so all the time.
inline std::atomic<uint32_t>* staged_epoll = nullptr;

inline int StagedCreate(int) { return 0; }
inline int StagedControl(int, int, int, const epoll_event* event) {
  if ((event->events & EPOLLIN) == 0) return 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  staged_epoll->store(1, std::memory_order_relaxed);
  checked::FutexWake(staged_epoll);
  return 0;
}
inline int StagedWait(int, epoll_event*, int, int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return static_cast<int>(staged_epoll->exchange(0, std::memory_order_relaxed));
}
inline int StagedClose(int) { return 0; }

}  // namespace covey

#define epoll_create1 StagedCreate
#define epoll_ctl StagedControl
#define epoll_wait StagedWait
#define close StagedClose
#endif  // COVEY_TESTS_ORDERS_ONE_SHOT_STAGE_H_
