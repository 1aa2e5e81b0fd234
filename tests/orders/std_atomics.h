// Included before all else in the sources that the tests of orders compile: inside namespace covey
// the names std::atomic, std::atomic_ref, std::atomic_thread_fence, sched_yield and syscall mean
// those below, which are operations of the execution under way (tests/orders/execution.h).
//
// The sources are those of the shipped build, unchanged. Types have the size of the real ones.
#ifndef COVEY_TESTS_ORDERS_STD_ATOMICS_H_
#define COVEY_TESTS_ORDERS_STD_ATOMICS_H_

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>

namespace covey {

// The execution under way, or memory itself where there is none. Words of up to 8 bytes.
namespace checked {
uint64_t Load(const void* word, size_t size, std::memory_order order);
void Store(void* word, size_t size, uint64_t value, std::memory_order order);
uint64_t Exchange(void* word, size_t size, std::memory_order order,
                  const std::function<uint64_t(uint64_t)>& change);
bool CompareExchange(void* word, size_t size, uint64_t* expected, uint64_t desired,
                     std::memory_order success, std::memory_order failure);
void Fence(std::memory_order order);
void FutexWait(const void* word, uint32_t expected, bool for_ever);
void FutexWake(const void* word);
void Yield();
}  // namespace checked

inline void sched_yield() { checked::Yield(); }

// A call of the futex. A timeout of more than a day is none.
using ::syscall;
inline long syscall(long, uint32_t* word, int operation, uint32_t value, const timespec* timeout,
                    void*, int) {
  constexpr time_t kDay = 86400;
  if ((operation & 1) == 0)
    checked::FutexWait(word, value, timeout == nullptr || timeout->tv_sec > kDay);
  else
    checked::FutexWake(word);
  return 0;
}

namespace std {
using namespace ::std;

inline memory_order FailureOf(memory_order order) {
  if (order == memory_order_acq_rel) return memory_order_acquire;
  return order == memory_order_release ? memory_order_relaxed : order;
}

inline void atomic_thread_fence(memory_order order) { checked::Fence(order); }

template <typename T>
uint64_t ToWord(T value) {
  uint64_t word = 0;
  memcpy(&word, &value, sizeof(T));
  return word;
}

template <typename T>
T FromWord(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

template <typename T>
class atomic_ref {
 public:
  explicit atomic_ref(T& word) : word_(&word) {}

  T load(memory_order order = memory_order_seq_cst) const {
    return FromWord<T>(checked::Load(word_, sizeof(T), order));
  }
  void store(T value, memory_order order = memory_order_seq_cst) const {
    checked::Store(word_, sizeof(T), ToWord(value), order);
  }
  T exchange(T value, memory_order order = memory_order_seq_cst) const {
    return Change(order, [value](T) { return value; });
  }
  T fetch_add(T more, memory_order order = memory_order_seq_cst) const {
    return Change(order, [more](T now) { return static_cast<T>(now + more); });
  }
  T fetch_sub(T less, memory_order order = memory_order_seq_cst) const {
    return Change(order, [less](T now) { return static_cast<T>(now - less); });
  }
  bool compare_exchange_strong(T& expected, T desired, memory_order success,
                               memory_order failure) const {
    uint64_t word = ToWord(expected);
    const bool done =
        checked::CompareExchange(word_, sizeof(T), &word, ToWord(desired), success, failure);
    expected = FromWord<T>(word);
    return done;
  }
  bool compare_exchange_strong(T& expected, T desired,
                               memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(expected, desired, order, FailureOf(order));
  }

 private:
  template <typename Next>
  T Change(memory_order order, Next next) const {
    return FromWord<T>(checked::Exchange(
        word_, sizeof(T), order, [&](uint64_t now) { return ToWord(next(FromWord<T>(now))); }));
  }

  T* word_;
};

template <typename T>
class atomic {
 public:
  static constexpr bool is_always_lock_free = ::std::atomic<T>::is_always_lock_free;

  constexpr atomic() noexcept : value_() {}
  constexpr atomic(T value) noexcept : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  T load(memory_order order = memory_order_seq_cst) const { return Ref().load(order); }
  void store(T value, memory_order order = memory_order_seq_cst) { Ref().store(value, order); }
  T exchange(T value, memory_order order = memory_order_seq_cst) {
    return Ref().exchange(value, order);
  }
  T fetch_add(T more, memory_order order = memory_order_seq_cst) {
    return Ref().fetch_add(more, order);
  }
  T fetch_sub(T less, memory_order order = memory_order_seq_cst) {
    return Ref().fetch_sub(less, order);
  }
  bool compare_exchange_strong(T& expected, T desired, memory_order success, memory_order failure) {
    return Ref().compare_exchange_strong(expected, desired, success, failure);
  }
  bool compare_exchange_strong(T& expected, T desired, memory_order order = memory_order_seq_cst) {
    return Ref().compare_exchange_strong(expected, desired, order);
  }
  operator T() const { return load(); }
  T operator=(T value) {
    store(value);
    return value;
  }

 private:
  atomic_ref<T> Ref() const { return atomic_ref<T>(const_cast<T&>(value_)); }

  T value_;
};

}  // namespace std
}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_STD_ATOMICS_H_
