// One execution of a case: a few threads of the code under test, run as fibers, one operation on a
// shared word at a time, over memory that is as weak as C++20 lets it be.
//
// Choices (choices.h) say at each operation which thread goes on, which message a load reads and
// which plain bytes are seen early. An execution fails where a case says so, where a thread sleeps
// for ever or does not end, and where two threads write different bytes to one place, unordered.
//
// A call of the futex is a seq_cst fence and a lock around a look at the word, as the kernel's is;
// with a timeout it returns at once. A thread that yields goes on once another has done something.
#ifndef COVEY_TESTS_ORDERS_EXECUTION_H_
#define COVEY_TESTS_ORDERS_EXECUTION_H_

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/orders/choices.h"
#include "tests/orders/shared_bytes.h"
#include "tests/orders/weak_memory.h"
#include "tests/sim/simulator/fiber.h"

namespace covey {

class Execution;

// A case: the bodies of its threads. One object for each execution.
class OrdersCase {
 public:
  virtual ~OrdersCase() = default;
  virtual int threads() const = 0;
  // Before the threads, on a thread of its own, which has the number threads().
  virtual void Begin(Execution* execution) = 0;
  virtual void Run(int thread) = 0;
  // After them, on the thread of Begin; it has seen everything.
  virtual void End() {}
};

// The fibers of the threads, used by one execution after the other.
class OrdersFibers {
 public:
  explicit OrdersFibers(int threads);
  ~OrdersFibers();

  void Start(int thread, std::function<void()> body);
  void Resume(int thread);
  void Leave(int thread);  // called on it
  bool IsBusy(int thread) const;

 private:
  struct Worker {
    std::function<void()> body;  // null: it has none
    std::unique_ptr<Fiber> fiber;
  };

  bool ends_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
};

class Execution {
 public:
  Execution(OrdersCase* orders_case, Choices* choices, OrdersFibers* fibers);
  ~Execution();

  // The failure; empty: none.
  std::string Run();
  // A line for each operation.
  const std::string& trace() const { return trace_; }

  // For cases: mappings of shared memory, by thread and one for Begin; see SharedBytes.
  void Share(std::vector<std::byte*> mappings, size_t length_bytes);
  // [offset, offset + length) is plain bytes, the rest words.
  void Watch(size_t offset, size_t length_bytes) { bytes_->Watch(offset, length_bytes); }
  int current() const { return current_; }
  // Ends the execution.
  void Fail(const std::string& failure);
  void Expect(bool condition, const std::string& failure) {
    if (!condition) Fail(failure);
  }

  // The execution of the thread that runs. Null: no execution is under way.
  static Execution* Current();
  using Order = std::memory_order;
  uint64_t Load(const void* word, size_t size, Order order);
  void Store(void* word, size_t size, uint64_t value, Order order);
  uint64_t Exchange(void* word, size_t size, Order order,
                    const std::function<uint64_t(uint64_t)>& change);
  bool CompareExchange(void* word, size_t size, uint64_t* expected, uint64_t desired, Order success,
                       Order failure);
  void Fence(Order order);
  void FutexWait(const void* word, uint32_t expected, bool for_ever);
  void FutexWake(const void* word);
  void Yield();

 private:
  enum class State : uint8_t { kRuns, kYielded, kAsleep, kDone };
  struct Thread {
    State state = State::kRuns;
    uint32_t asleep_at = 0;
  };
  struct Ended {};  // thrown on a fiber whose execution is over

  bool IsMain() const { return current_ == threads_; }
  uint32_t LocationOf(const void* word, size_t size);
  void Note(const char* what, uint32_t location, uint64_t value, Order order);
  void EnterKernel();
  void Before();
  void After();
  void Switch(bool may_stay);
  std::vector<int> Runnable(bool may_stay);
  void Main(int thread);
  void RunThreads();

  static constexpr uint64_t kMostOperations = 4000;

  OrdersCase* case_;
  Choices* choices_;
  OrdersFibers* fibers_;
  const int threads_;
  WeakMemory memory_;
  std::unique_ptr<SharedBytes> bytes_;
  std::unordered_map<uintptr_t, uint32_t> locations_;  // by address, or offset in shared memory
  std::vector<Thread> states_;
  int current_;
  const uint32_t kernel_;  // its lock, as a location
  bool is_over_ = false;
  uint64_t operations_ = 0;
  std::string failure_;
  std::string trace_;
};

struct OrdersBounds {
  size_t deviations = 0;       // of the systematic search
  uint64_t most_searched = 0;  // executions of it
  uint64_t drawn = 0;          // executions by seeds 1, 2, ...
};
struct Explored {
  std::string failure;  // the first, with the choices that lead to it; empty: none
  std::string trace;    // of that execution
  uint64_t executions = 0;
  bool is_complete = true;  // the search has reached its end
};
Explored Explore(const std::function<std::unique_ptr<OrdersCase>()>& make,
                 const OrdersBounds& bounds);

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_EXECUTION_H_
