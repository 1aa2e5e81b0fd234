// Threads that wait for what messages of a channel bring: one of them drives the runtime, or the
// engine thread does.
//
// Any thread, with the lock of the port where it is said.
#ifndef COVEY_CORE_REPLICATED_CHANNEL_WAITERS_H_
#define COVEY_CORE_REPLICATED_CHANNEL_WAITERS_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/replicated/witness.h"

namespace covey {

// The objects that drive a port of a channel. All borrowed.
struct ChannelDriver {
  // Until it is true, or the deadline: whether it is.
  std::function<bool(const std::atomic<bool>& ended, Time deadline)> drive;
  std::function<void()> kick;  // it is to come soon
  Clock* clock = nullptr;
  Log* log = nullptr;
  Time warning = 0;           // interval of the warning about silent ranks; 0: never
  Time lease = 10 * kSecond;  // after such a silence a rank is lost, and much earlier left out
  // A channel's way to the witness of its replicas: a request, and the next answer, false without
  // one. Null: the job has no witness.
  std::function<void(uint64_t channel, const WitnessRequest& request)> ask_witness = nullptr;
  std::function<bool(uint64_t channel, WitnessAnswer* answer)> hear_witness = nullptr;
};

class ChannelWaiters {
 public:
  using Done = std::function<bool()>;

  // `mutex` is the port's lock, under which `done` is asked.
  explicit ChannelWaiters(std::mutex* mutex) : mutex_(mutex) {}

  // Until done(). kTimeout: the deadline is over; kAborted: Interrupt was called. Without the lock.
  Status Await(const ChannelDriver& driver, const Done& done, Time deadline);
  // Asks for each that waits; whether the wait of any has ended. With the lock.
  bool Check();
  bool empty() const { return waiters_.empty(); }
  // Waits in progress and to come end. With the lock.
  void Interrupt();

 private:
  struct Waiter {
    const Done* done;
    std::atomic<bool>* ended;
  };

  std::mutex* mutex_;
  // Protected by *mutex_.
  std::vector<Waiter> waiters_;
  bool is_stopped_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_CHANNEL_WAITERS_H_
