// Submissions from user threads, and the operations behind the handles they got.
//
// The only meeting point of user threads and the thread that holds the progress lock: one mutex,
// held for a few instructions. It does not decide anything about an operation beyond refusing a
// name already in flight, and memory that another operation in flight uses
// (core/engine/memory_in_use.h).
//
// Invariants (core/PROTOCOL.md: engine-Q1, engine-Q2, engine-Q5):
//  1. An Operation is owned here from Submit until it has ended *and* its handle was released *and*
//     no thread holds it (Hold).
//  2. A named operation in flight blocks its (group, name); ending it frees the name before `ended`
//     is visible. A name stays known until Forget.
//  3. A thread that sees `ended` sees the results and the status.
#ifndef COVEY_CORE_ENGINE_TENSOR_QUEUE_H_
#define COVEY_CORE_ENGINE_TENSOR_QUEUE_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/engine/memory_in_use.h"
#include "core/engine/operation.h"

namespace covey {

class TensorQueue {
 public:
  // An empty operation to be filled in and passed to Submit (or Discard).
  Operation* New();
  // One that still has its request, which was of this name and may be repeated (engine-Q7); null:
  // there is none. To be submitted or discarded.
  Operation* TakeRepeatable(uint64_t group, std::string_view name);
  void Discard(Operation* operation);

  // Queues it and gives it a handle; InvalidArgument when its name is already in flight in its
  // group, or another operation in flight uses its memory (then it is discarded).
  Status Submit(Operation* operation, uint64_t* handle);
  // Holder of the progress lock: the same; true in *is_taken: it is not queued, and the caller
  // hands it to the runtime. False: others are queued before it.
  Status SubmitTaken(Operation* operation, uint64_t* handle, bool* is_taken);

  // The caller is about to wait for it. Counts once per operation: what was submitted before and
  // after is not outstanding together (agree-N7). Any thread.
  void Await(Operation* operation);
  // The caller looks whether it has ended. Doing so twice is as good as waiting: true the second
  // time.
  bool Poll(Operation* operation);
  // How often operations were first waited for.
  uint64_t waits() const { return waits_.load(std::memory_order_acquire); }

  // Holder of the progress lock: moves all queued operations to `taken` (which is cleared first).
  // Cheap when there are none.
  void TakeAll(std::vector<Operation*>* taken);
  bool HasQueued() const { return queued() > 0; }
  // seq_cst: after this thread has said that it parks, or gathers (core/engine/engine.cc).
  size_t queued() const { return queued_count_.load(); }

  // Holder of the progress lock: these have ended. Their callbacks, if any, are queued. Afterwards
  // they may be gone. Clears `ended`.
  struct Ended {
    Operation* operation;
    Status status;
  };
  void Finish(std::vector<Ended>* ended);

  // Holder of the progress lock: these names are not known any more, but for those in flight again.
  void Forget(const std::vector<NameMemo*>& names);
  size_t known_names();

  // Runs queued callbacks. Any thread that holds neither the progress lock nor a lock.
  bool HasCallbacks() const { return callback_count_.load(std::memory_order_acquire) > 0; }
  void RunCallbacks();

  Operation* Find(uint64_t handle);  // null: unknown or released
  // The same, and until LetGo it stays what it is although another thread releases the handle.
  Operation* Hold(uint64_t handle);
  // Whether it has ended, which the program is told, with its status. As Hold, a look and LetGo.
  bool See(uint64_t handle, Status* status);
  // `is_seen`: the program is told that it has ended, and others may use its memory.
  void LetGo(Operation* operation, bool is_seen);
  // Forgets the handle; the operation itself is kept until it ends. False: unknown handle.
  bool Release(uint64_t handle);
  // The same for one that has ended well; false: it has not, or is unknown.
  bool ReleaseIfDone(uint64_t handle);

  size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  struct Name {
    uint64_t group;
    std::string_view name;  // points into what is known of it, or into an operation
    bool operator==(const Name&) const = default;
  };
  struct NameHash {
    size_t operator()(const Name& n) const {
      return std::hash<std::string_view>()(n.name) ^ (n.group * 0x9e3779b97f4a7c15u);
    }
  };
  // A name that was used: a training step uses the same ones again.
  struct Known : NameMemo {
    uint64_t group = 0;
    std::string name;
    Operation* in_flight = nullptr;
  };

  struct Callback {
    void (*function)(void* context, uint64_t handle, const Status& status);
    void* context;
    uint64_t handle;
    Status status;
  };

  // mutex_ held.
  void FinishOne(Ended* ended);
  Operation*& KeptPlace(uint64_t group, std::string_view name);
  static void Empty(Operation* operation);
  Status Enter(Operation* operation, uint64_t* handle);
  Known& KnownOf(const Operation& operation);
  Status Claim(Operation* operation);  // its name and its memory
  static void FreeName(Operation* operation);
  void Reuse(Operation* operation);
  void ReuseIfOver(Operation* operation);
  Operation* FindLocked(uint64_t handle);

  std::mutex mutex_;
  // Protected by mutex_.
  std::vector<std::unique_ptr<Operation>> all_;
  std::vector<uint32_t> free_;
  // Released, with requests that may be repeated: by hash of the name, the later one stays.
  std::array<Operation*, 64> kept_{};
  std::vector<Operation*> queued_;
  std::unordered_map<Name, std::unique_ptr<Known>, NameHash> names_;
  MemoryInUse in_use_;

  std::vector<Callback> callbacks_;

  std::atomic<size_t> queued_count_{0};
  std::atomic<size_t> callback_count_{0};
  std::atomic<size_t> in_flight_{0};
  std::atomic<uint64_t> waits_{0};
};

// An operation held for as long as this lives.
class HeldOperation {
 public:
  HeldOperation(TensorQueue* queue, uint64_t handle)
      : queue_(queue), operation_(queue->Hold(handle)) {}
  ~HeldOperation() {
    if (operation_ != nullptr) queue_->LetGo(operation_, is_seen_);
  }
  HeldOperation(const HeldOperation&) = delete;
  HeldOperation& operator=(const HeldOperation&) = delete;

  // The program is told that it has ended.
  void See() { is_seen_ = true; }

  Operation* get() const { return operation_; }  // null: unknown or released
  Operation* operator->() const { return operation_; }
  Operation& operator*() const { return *operation_; }

 private:
  TensorQueue* queue_;
  Operation* operation_;
  bool is_seen_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_TENSOR_QUEUE_H_
