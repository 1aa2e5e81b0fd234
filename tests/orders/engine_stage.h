// What engine.cc is compiled with for its case: a runtime and a queue that hold no more than the
// engine asks them, and locks, condition variables and threads that run in an execution.
//
// Included once, before core/engine/engine.h, whose other headers it stands for.
#ifndef COVEY_TESTS_ORDERS_ENGINE_STAGE_H_
#define COVEY_TESTS_ORDERS_ENGINE_STAGE_H_
// In place of core/engine/runtime.h, which brings the real ones.
#define COVEY_CORE_ENGINE_RUNTIME_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

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

class mutex {
 public:
  void lock() {
    while (held_.exchange(1, memory_order_acquire) != 0) checked::FutexWait(&held_, 1, true);
  }
  void unlock() {
    held_.store(0, memory_order_release);
    checked::FutexWake(&held_);
  }

 private:
  atomic<uint32_t> held_{0};
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

// As core/engine/tensor_queue.h: the count of what is queued is all that is read without a lock.
class TensorQueue {
 public:
  static constexpr size_t kMost = 2;

  void Submit(size_t number, Operation* operation) {
    queued_[number].store(operation, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_release);
  }
  Operation* Take(size_t number) {
    Operation* operation = queued_[number].exchange(nullptr, std::memory_order_relaxed);
    if (operation != nullptr) count_.fetch_sub(1, std::memory_order_release);
    return operation;
  }
  bool HasQueued() const { return queued() > 0; }
  size_t queued() const { return count_.load(std::memory_order_acquire); }
  bool HasCallbacks() const { return false; }
  void RunCallbacks() {}

 private:
  std::array<std::atomic<Operation*>, kMost> queued_{};
  std::atomic<size_t> count_{0};
};

// A pass takes what is queued and ends it in the next pass.
class Runtime {
 public:
  Runtime(Execution* execution, TensorQueue* queue) : execution_(execution), queue_(queue) {}

  Time RunOnce(bool* moved) {
    execution_->Expect(!is_inside_, "engine-E1: two threads are inside RunOnce");
    is_inside_ = true;
    for (Operation*& one : begun_) {
      if (one != nullptr) one->ended.store(true, std::memory_order_release);
      *moved |= one != nullptr;
      one = nullptr;
    }
    for (size_t i = 0; i < TensorQueue::kMost && queue_->HasQueued(); ++i) {
      begun_[i] = queue_->Take(i);
      *moved |= begun_[i] != nullptr;
    }
    is_inside_ = false;
    return kNever;
  }
  // A pass ends whatever has begun: there are no peers.
  bool AwaitsWord() const { return false; }
  bool Idle() const {
    for (const Operation* one : begun_)
      if (one != nullptr) return false;
    return true;
  }

 private:
  Execution* execution_;
  TensorQueue* queue_;
  bool is_inside_ = false;
  std::array<Operation*, TensorQueue::kMost> begun_{};
};

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_ENGINE_STAGE_H_
