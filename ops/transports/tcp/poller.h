// One descriptor on which a thread sleeps until one of many sockets is ready or a time has come.
//
// Level-triggered: it stays readable until what made it so is dealt with. One thread calls Ready
// and WakeAt; Add, Watch and Remove: any thread.
#ifndef COVEY_OPS_TRANSPORTS_TCP_POLLER_H_
#define COVEY_OPS_TRANSPORTS_TCP_POLLER_H_

#include <array>
#include <cstdint>
#include <span>

#include "core/base/types.h"

namespace covey::tcp {

class Poller {
 public:
  static constexpr size_t kMost = 64;  // in one answer
  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  bool is_sound() const { return fd_ >= 0 && timer_ >= 0; }
  int fd() const { return fd_; }

  // `key` names it in Ready. To be removed before it is closed: a process that this one has forked
  // may hold it, too, and its news would go on.
  void Add(int fd, uint64_t key, bool writes = false);
  void Watch(int fd, uint64_t key, bool writes, bool reads = true);  // added before
  void Remove(int fd);
  // The descriptor becomes readable at `when` on MonotonicNow's clock; kNever: not by time.
  void WakeAt(Time when);
  // The keys of what is ready now; with `waits`, once something is. Valid until the next call.
  std::span<const uint64_t> Ready(bool waits = false);

 private:
  int fd_ = -1;
  int timer_ = -1;
  Time wake_ = kNever;
  std::array<uint64_t, kMost> keys_{};
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_POLLER_H_
