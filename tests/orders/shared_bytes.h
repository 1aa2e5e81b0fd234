// Plain memory that threads share, of which each thread sees its own copy.
//
// Code under test reads and writes plain bytes where nothing can intercept it. So each thread has a
// mapping of its own, as ranks have. What a thread has written since its last operation on a word
// becomes messages, one for each 8 bytes, at the next one. Before a thread goes on, its copy gets
// what happens before, and some of what it may see early, each 8 bytes for themselves: so a racy
// copy may be torn, and bytes that are not published may be stale.
//
// Only watched bytes are shared so. One thread.
#ifndef COVEY_TESTS_ORDERS_SHARED_BYTES_H_
#define COVEY_TESTS_ORDERS_SHARED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/orders/choices.h"
#include "tests/orders/weak_memory.h"

namespace covey {

class SharedBytes {
 public:
  // The mappings of the threads, each `length_bytes` long, zero at first and multiples of 8.
  SharedBytes(WeakMemory* memory, std::vector<std::byte*> mappings, size_t length_bytes);

  // [offset, offset + length) is shared; multiples of 8, and no words.
  void Watch(size_t offset, size_t length_bytes);
  // The offset of `address` in the mapping that has it; false: none does.
  bool Find(const void* address, size_t* offset) const;

  // Publishes the writes of `thread`. False: another thread has written something else, unordered.
  bool Publish(int thread);
  // Shows it what it must see and, by a choice, more.
  void Arrive(int thread, Choices* choices);

 private:
  struct Cell {
    size_t offset;
    uint32_t location;            // kNone: nobody has written it yet
    std::vector<uint32_t> shown;  // by thread: the message that its copy has
  };
  struct Range {
    size_t offset, length_bytes, first;  // of the cells
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  uint64_t* At(int thread, size_t offset) const;
  void Show(int thread, Cell* cell, uint32_t message);

  WeakMemory* memory_;
  std::vector<std::byte*> mappings_;
  size_t length_bytes_;
  std::vector<Range> ranges_;
  std::vector<Cell> cells_;
  std::vector<size_t> written_;               // cells that somebody has written
  std::vector<std::vector<uint64_t>> known_;  // by thread and cell: its copy as it was last
};

}  // namespace covey
#endif  // COVEY_TESTS_ORDERS_SHARED_BYTES_H_
