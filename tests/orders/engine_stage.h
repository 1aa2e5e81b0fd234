// The stage of engine.cc and tensor_queue.cc in their case: a runtime that has no more than the
// engine asks of it, and locks, condition variables and threads that run in an execution.
//
// Included once, before core/engine/engine.h, whose other headers it stands for.
#ifndef COVEY_TESTS_ORDERS_ENGINE_STAGE_H_
#define COVEY_TESTS_ORDERS_ENGINE_STAGE_H_
// In place of core/engine/runtime.h, which brings the real ones.
#define COVEY_CORE_ENGINE_RUNTIME_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/operation.h"
#include "ops/transports/shm.h"
#include "tests/orders/execution.h"

namespace covey {

// The body that the next thread of the stage runs, and whether it has ended.
struct StagedThread {
  std::function<void()> body;
  std::atomic<bool> ended{false};
};
inline StagedThread* staged_thread = nullptr;

namespace std {

// No more than an acquire and a release where no other thread wants it.
class mutex {
 public:
  void lock() {
    uint32_t free = kFree;
    if (held_.compare_exchange_strong(free, kHeld, memory_order_acquire)) return;
    while (held_.exchange(kWanted, memory_order_acquire) != kFree)
      checked::FutexWait(&held_, kWanted, true);
  }
  void unlock() {
    if (held_.exchange(kFree, memory_order_release) == kWanted) checked::FutexWake(&held_);
  }

 private:
  enum : uint32_t { kFree, kHeld, kWanted };

  atomic<uint32_t> held_{kFree};
};

// A wait of less than a day may end at any time.
class condition_variable {
 public:
  template <typename Lock, typename Duration, typename Condition>
  bool wait_for(Lock& lock, Duration duration, Condition condition) {
    const bool for_ever = duration > chrono::hours(24);
    while (!condition()) {
      const uint32_t notified = notified_.load(memory_order_relaxed);
      lock.unlock();
      checked::FutexWait(&notified_, notified, for_ever);
      lock.lock();
      if (!for_ever) return condition();
    }
    return true;
  }
  void notify_all() {
    notified_.fetch_add(1, memory_order_relaxed);
    checked::FutexWake(&notified_);
  }

 private:
  atomic<uint32_t> notified_{0};
};

class thread {
 public:
  thread() = default;
  explicit thread(function<void()> body) : staged_(staged_thread) { staged_->body = move(body); }

  bool joinable() const { return staged_ != nullptr; }
  void join() {
    while (Execution::Current() != nullptr && !staged_->ended.load(memory_order_acquire))
      sched_yield();
  }

 private:
  StagedThread* staged_ = nullptr;
};

}  // namespace std

}  // namespace covey

#include "core/engine/tensor_queue.h"

namespace covey {

// A pass takes what is queued and ends it in the next pass. Its tensor is a word of shared memory,
// which each thread has mapped for itself.
class Runtime {
 public:
  static constexpr uint64_t kGiven = 1, kResult = 2;
  using Tensor = std::function<uint64_t*(const Operation& operation)>;  // as this thread has it

  Runtime(Execution* execution, TensorQueue* queue, Tensor tensor)
      : execution_(execution), queue_(queue), tensor_(std::move(tensor)) {}

  Time RunOnce(bool* moved) {
    execution_->Expect(!is_inside_, "engine-E1: two threads are inside RunOnce");
    is_inside_ = true;
    std::vector<TensorQueue::Ended> ended;
    for (Operation* one : begun_) {
      uint64_t* tensor = tensor_(*one);
      execution_->Expect(*tensor == kGiven, "an operation is taken without its tensor");
      *tensor = kResult;
      ended.push_back({one, Status::Ok()});
    }
    *moved |= !ended.empty();
    queue_->Finish(&ended);
    queue_->TakeAll(&begun_);
    *moved |= !begun_.empty();
    is_inside_ = false;
    return kNever;
  }
  // The first one is left begun, as by a rank whose peers have not come; others end at once.
  bool MayRepeat() const { return Idle(); }
  Time Repeat(Operation* operation, int /*yields*/) {
    execution_->Expect(!is_inside_, "engine-E1: a thread repeats while another is inside RunOnce");
    is_inside_ = true;
    begun_.push_back(operation);
    is_inside_ = false;
    bool moved = false;
    if (operation->draw > 0) RunOnce(&moved);
    return 0;
  }
  Time pass_began() const { return 1; }  // Nothing here has a deadline.
  // A pass ends whatever has begun: there are no peers.
  bool AwaitsWord() const { return false; }
  bool Idle() const { return begun_.empty(); }

 private:
  Execution* execution_;
  TensorQueue* queue_;
  const Tensor tensor_;
  bool is_inside_ = false;
  std::vector<Operation*> begun_;
};

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_ENGINE_STAGE_H_
