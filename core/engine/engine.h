// The thread of a runtime, and the progress lock, whose holder drives it.
//
// The thread that holds the progress lock runs Runtime::RunOnce. A thread that waits for an
// operation takes it and drives the runtime itself, so that a small blocking operation costs no
// hand-over between threads; otherwise the engine thread drives. Holder or not, a
// waiting thread spins, then yields, then parks; with more ranks than cores it does not spin.
//
// Invariants (core/PROTOCOL.md: engine-E1, engine-E2, engine-E3):
//  1. At most one thread is inside RunOnce (progress_lock_).
//  2. No thread sleeps while there is work that no other will do: before parking a sleeper
//     publishes it (SetParked) and looks once more; a waiter that gives the progress lock back
//     leaves kEngine published and rings the engine thread when something is still under way, or
//     due before that thread looks by itself. While a waiter claims the progress lock (claims_),
//     the engine thread and the last holder leave the rest to that waiter, which hands the rest on
//     if it leaves without driving (HandOn). Every pass, the last before parking too, tells waiters
//     of what it has ended (Look). Stop is looked for after the ticket.
//  3. Callbacks run on the engine thread or a waiter, without the progress lock and without any
//     lock.
#ifndef COVEY_CORE_ENGINE_ENGINE_H_
#define COVEY_CORE_ENGINE_ENGINE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/engine/runtime.h"

namespace covey {

class Engine {
 public:
  struct Options {
    Time spin = 20 * kMicrosecond;  // by a waiter, before it yields
    int yields = 16;                // then before it parks
    // Over a network a waiter yields for at least so long: waking it takes longer than a message.
    // MPI's waiters do not sleep at all.
    Time network_yield = 2 * kMillisecond;
    // Where nothing wakes a sleeper that waits for the network, it looks by itself so soon; the
    // engine thread twice as late after each look that has found nothing, up to 16 times: each look
    // takes a core from a waiter, which looks itself.
    Time network_look = 100 * kMicrosecond;
    Time recheck = kSecond;       // a sleeping thread looks by itself after so long at the latest
    bool oversubscribed = false;  // more ranks than cores: no spinning at all
    bool threaded = true;         // false: no engine thread, only waiters drive
  };

  // All borrowed, outlive the engine.
  Engine(Options options, Runtime* runtime, Transport* transport, TensorQueue* queue);
  ~Engine();  // Stop

  void Start();
  // Joins the engine thread. Waits in progress end with kTimeout. Afterwards the caller drives the
  // runtime alone.
  void Stop();

  // Tells the driving thread that something was queued. Any thread.
  void Kick();
  // Submits what repeats the operation before; this thread waits for it next. If nothing else is in
  // flight it begins at once, and has ended if all members had begun by then. As
  // TensorQueue::Submit. Any thread.
  Status SubmitRepeat(Operation* operation, uint64_t* handle);

  // Waits until `operation` has ended: true. False at the deadline. Any thread.
  bool Wait(const Operation& operation, Time deadline);
  // The same for a condition that RunOnce makes true; not counted in waited_ns.
  bool DriveUntil(const std::atomic<bool>& ended, Time deadline);

  // Runs `fn` with the progress lock held. Any thread but one that holds it.
  void WithProgressLock(const std::function<void()>& fn);

  Time waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }

 private:
  bool TryAcquire();
  void Release();           // and lets the next take over
  void Release(bool idle);  // the same; nothing is under way that needs the engine thread
  Time Look(bool* moved);   // RunOnce
  void ThreadMain();
  Time NetworkLook(int useless) const;
  void ParkThread(uint32_t ticket, Time until);
  // The outcome of a turn of the engine thread.
  struct Turn {
    Time until;   // when to look again at the latest
    bool worked;  // something happened at all
    bool took;    // something had been submitted
    bool idle;    // nothing is under way
    bool again;   // something happened in the last look: do not park
  };
  // Of submissions that follow one another closely.
  struct Burst {
    int looks = 0;      // more that may leave them alone
    size_t queued = 0;  // at the last
  };
  Turn DriveUntilIdle();
  bool GoesOn(Burst* burst);
  // Lowers *began to when it first looked or waited; kNever stays where there was nothing to do.
  bool DriveUntil(const std::atomic<bool>& ended, Time deadline, Time* began);
  Time DriveFor(const std::atomic<bool>& ended, Time deadline);
  void LookForWord() const;
  void AwaitProgressLock(const std::atomic<bool>& ended, Time deadline);
  void HandOn();
  bool IsWorkLeft(bool idle) const;
  void NotifySleepers();

  Options options_;
  Runtime* runtime_;
  Transport* transport_;
  TensorQueue* queue_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> progress_lock_{false};
  // Submitters need not ring the engine thread: waiters drive anyway; it looks again soon.
  std::atomic<bool> lazy_{false};
  std::atomic<bool> gathers_{false};
  std::atomic<int> wanted_{0};  // WithProgressLock callers in line: drivers give way
  std::atomic<int> claims_{0};  // waiters that would drive: the engine thread gives way
  std::atomic<int> sleepers_{0};
  std::atomic<Time> due_{kNever};  // the result of the last pass
  // When the engine thread looks by itself; kNever: it is awake; 0: there is none.
  std::atomic<Time> looks_at_{0};
  std::atomic<Time> waited_ns_{0};
  std::mutex mutex_;
  std::condition_variable
      changed_;  // the progress lock became free, or an operation ended while sleepers_ > 0
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_ENGINE_H_
