// An operation behind a handle: a request, and its outcome. The tensor queue owns it.
#ifndef COVEY_CORE_ENGINE_OPERATION_H_
#define COVEY_CORE_ENGINE_OPERATION_H_

#include <atomic>
#include <cstddef>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace covey {

struct MemorySpan {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;

  bool Meets(const MemorySpan& other) const { return begin < other.end && other.begin < end; }
};

// Where the tensors of an operation lie; found out when there is another to compare with.
struct Footprint {
  struct Extent {
    const std::byte* begin;
    const std::byte* end;
    bool is_written;
  };
  std::vector<Extent> extents;  // by address; without empty tensors and those read in place
  MemorySpan whole;
  bool is_known = false;
  bool is_counted = false;  // by MemoryInUse
  size_t place = 0;         // there
};

struct Operation : Request {
  uint64_t handle = 0;
  void (*callback)(void* context, uint64_t handle, const Status& status) = nullptr;
  void* context = nullptr;
  Status status;  // valid once `ended`
  std::atomic<bool> ended{false};
  std::atomic<bool> waited_for{false};  // a thread waits for it, or polled it twice (agree-N6)
  std::atomic<bool> polled{false};      // once
  bool released = false;                // protected by the queue's mutex
  int holders = 0;                      // the same: threads between Hold and LetGo
  Operation** claimed = nullptr;        // the same: the operation with its name in flight
  // An equal request may follow: this one stays when the handle is released (engine-Q7). The holder
  // of the progress lock's until it has ended, then the queue's mutex's.
  bool repeats = false;
  Footprint footprint;  // the same
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_OPERATION_H_
