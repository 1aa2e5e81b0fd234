// Memory of threads as C++20 defines it (ISO/IEC 14882:2020, [intro.races], [atomics.order]), for
// one execution that a test drives step by step.
//
// A location has messages, the values it has taken, in modification order. A thread has views: for
// each location the oldest message that it may still read. A load reads any message that is not
// older. An acquire load joins the view that a release store left with the message; fences do the
// same for the relaxed accesses around them. The operations with memory_order_seq_cst are nodes of
// a graph, whose edges are the constraints on their total order S: a load reads no message with
// which the graph would have a cycle.
//
// The views are those of Kang, Hur, Lahav, Vafeiadis, Dreyer: A promising semantics for
// relaxed-memory concurrency, POPL 2017, doi:10.1145/3009837.3009850, without promises: no load
// reads a store that runs later. The graph is the psc of Lahav, Vafeiadis, Kang, Hur, Dreyer:
// Repairing sequential consistency in C/C++11, PLDI 2017, doi:10.1145/3062341.3062352, as C++20 has
// it. A message is the newest one of its location when it is written.
//
// Plain bytes are locations too, read and written relaxed: racy copies, as of a seqlock, are what
// the tests are about. One thread.
#ifndef COVEY_TESTS_ORDERS_WEAK_MEMORY_H_
#define COVEY_TESTS_ORDERS_WEAK_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace covey {

class WeakMemory {
 public:
  // One of so many, 0 being the newest message: which of them a load reads.
  using Pick = std::function<size_t(size_t count)>;
  using Order = std::memory_order;

  WeakMemory(int threads, Pick pick);

  // A location whose first message, which all threads have seen, is `value`.
  uint32_t Add(uint64_t value);

  uint64_t Load(int thread, uint32_t location, Order order);
  void Store(int thread, uint32_t location, uint64_t value, Order order);
  // Replaces the newest value by change(value); returns the one before.
  uint64_t Exchange(int thread, uint32_t location, Order order,
                    const std::function<uint64_t(uint64_t)>& change);
  // Strong. *expected becomes the value that was read.
  bool CompareExchange(int thread, uint32_t location, uint64_t* expected, uint64_t desired,
                       Order success, Order failure);
  void Fence(int thread, Order order);

  // Plain bytes. The messages from Oldest to Newest may be seen; Show makes one seen.
  uint32_t Oldest(int thread, uint32_t location) const;
  uint32_t Newest(uint32_t location) const;
  uint64_t Show(int thread, uint32_t location, uint32_t message);
  // True: another thread's last write of another value does not happen before this one.
  bool Write(int thread, uint32_t location, uint64_t value);

  // All that `from` has seen and done happens before what `to` does next.
  void Join(int to, int from);

 private:
  using Times = std::vector<uint32_t>;
  struct View {
    Times at;       // by location: the oldest message that may be read
    Times ordered;  // by thread: how many of its nodes strongly happen before
    Times fences;   // by thread: 1 + the node of its last fence that happens before; 0: none
    void Join(const View& other);
    void Raise(uint32_t location, uint32_t message);
  };
  struct Message {
    uint64_t value;
    int writer;
    View view;  // of those that acquire it
  };
  // An access that constrains S.
  struct Access {
    bool is_write;
    uint32_t message;
    int node;              // -1: it is not seq_cst
    std::vector<int> pre;  // it, and the fences that happen before it
  };
  struct Location {
    std::vector<Message> messages;
    std::vector<Access> accesses;
  };
  struct Thread {
    View now;       // what it has seen
    View acquired;  // what an acquire fence would show
    View released;  // as of its last release fence
    std::vector<int> nodes;
    std::vector<uint32_t> stale;  // by location: loads in a row that did not read the newest
  };
  struct Fenced {
    int node;
    Times at;
  };

  Thread& Of(int thread) { return threads_[static_cast<size_t>(thread)]; }
  void Acquire(Thread* thread, const Message& message, Order order);
  int NewNode(int thread, Order order);
  void Count(int thread, int node);
  Access AccessOf(int thread, int node, bool is_write, uint32_t message) const;
  std::vector<int> Before(const Location& location, const Access& access) const;
  std::vector<int> After(uint32_t location, const Access& access) const;
  bool IsPossible(uint32_t location, const Access& access);
  void Note(uint32_t location, const Access& access);
  bool Reaches(const std::vector<int>& from, const std::vector<int>& to);
  std::vector<uint32_t> Candidates(int thread, uint32_t location, int node);
  uint32_t Choose(int thread, uint32_t location, const std::vector<uint32_t>& candidates);
  void Append(int thread, uint32_t location, uint64_t value, Order order, int node,
              const View* continued);

  Pick pick_;
  std::vector<Thread> threads_;
  std::vector<Location> locations_;
  std::vector<std::vector<int>> edges_;  // by node: those after it in S
  std::vector<uint32_t> visited_;        // by node: the search that has met it
  uint32_t search_ = 0;
  std::vector<Fenced> fenced_;
};

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_WEAK_MEMORY_H_
