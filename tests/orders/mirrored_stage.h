// Headers that stand before mirrored.cc in its case: eventfds that are words of the execution. A
// call is a seq_cst fence and an access, as of a futex (tests/orders/execution.h).
//
// Included once, before mirrored.cc.
#ifndef COVEY_TESTS_ORDERS_MIRRORED_STAGE_H_
#define COVEY_TESTS_ORDERS_MIRRORED_STAGE_H_

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/transport/mirrored.h"
#include "tests/orders/execution.h"

namespace covey {

// The eventfds that were made since it was cleared. Their numbers are none of the kernel's.
struct StagedBells {
  static constexpr int kFirst = 1 << 24;

  std::atomic<uint32_t> rings[4];
  int made = 0;

  std::atomic<uint32_t>& Of(int fd) { return rings[fd - kFirst]; }
};
inline StagedBells* staged_bells = nullptr;

inline int StagedEventfd(unsigned, int) { return StagedBells::kFirst + staged_bells->made++; }
inline int StagedWrite(int fd, eventfd_t more) {
  std::atomic<uint32_t>& rings = staged_bells->Of(fd);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  rings.fetch_add(static_cast<uint32_t>(more), std::memory_order_relaxed);
  checked::FutexWake(&rings);
  return 0;
}
inline int StagedRead(int fd, eventfd_t* rings) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  *rings = staged_bells->Of(fd).exchange(0, std::memory_order_relaxed);
  return 0;
}
// Of the first descriptor: there is no network. A wait of less than a day may end at any time.
inline int StagedPoll(pollfd* wakers, nfds_t, const timespec* longest, const sigset_t*) {
  constexpr time_t kDay = 86400;
  std::atomic<uint32_t>& rings = staged_bells->Of(wakers[0].fd);
  checked::FutexWait(&rings, 0, longest->tv_sec > kDay);
  if (rings.load(std::memory_order_relaxed) == 0) return 0;
  wakers[0].revents = POLLIN;
  return 1;
}
inline int StagedCloseOf(int fd) { return fd < StagedBells::kFirst ? ::close(fd) : 0; }

}  // namespace covey

#define eventfd StagedEventfd
#define eventfd_write StagedWrite
#define eventfd_read StagedRead
#define ppoll StagedPoll
#define close StagedCloseOf
#endif  // COVEY_TESTS_ORDERS_MIRRORED_STAGE_H_
