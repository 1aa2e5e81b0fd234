// The memory of operations in flight: which of them a further one must not share.
//
// Operations run beside each other and in no common order, so one that writes what another reads or
// writes has a result that differs from rank to rank. Ranks cannot be made to agree on an order
// either (they may submit in different ones), so the second is refused where it is submitted. Two
// of one name, or unnamed, in one group are the exception: they run one after the other on all
// ranks.
//
// An operation uses its memory until its end was *seen* here (waited for, polled, told by a
// callback, released): whether a program is refused then depends on its text, not on its speed.
//
// No thread of its own: the tensor queue's lock protects it. Costs nothing to speak of while one
// operation is in flight. A scan skips kBlock operations at a time.
#ifndef COVEY_CORE_ENGINE_MEMORY_IN_USE_H_
#define COVEY_CORE_ENGINE_MEMORY_IN_USE_H_

#include <cstddef>
#include <vector>

#include "core/engine/operation.h"

namespace covey {

class MemoryInUse {
 public:
  // An operation in use that shares memory with this one, where one of the two writes; null: none.
  const Operation* ConflictOf(Operation* operation);
  // The operation is in flight from now on. REQUIRES: ConflictOf it was null, and it is not yet
  // counted.
  void Add(Operation* operation);
  // Its end was seen, or it was not taken: its footprint is found out anew.
  void Remove(Operation* operation);

 private:
  static constexpr size_t kBlock = 32;

  void Place(Operation* operation, size_t at);

  std::vector<Operation*> operations_;
  std::vector<MemorySpan> wholes_;  // of each; unknown of one that is alone
  std::vector<MemorySpan> blocks_;  // around kBlock of them each; may be larger than need be
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_MEMORY_IN_USE_H_
