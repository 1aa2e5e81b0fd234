#include "core/engine/tensor_queue.h"

#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

// A handle is a slot number and a generation, so that a stale handle is recognised.
constexpr uint64_t kSlotBits = 24;
constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

// "allreduce 'x'"
std::string Described(const Operation& operation) {
  const std::string kind = NameOf(operation.kind);
  return operation.name.empty() ? "unnamed " + kind : kind + " '" + operation.name + "'";
}

}  // namespace

Operation* TensorQueue::New() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    CHECK(all_.size() < kSlotMask, "more operations in flight than handles");
    all_.push_back(std::make_unique<Operation>());
    all_.back()->place = static_cast<uint32_t>(all_.size());
    all_.back()->handle = all_.size();  // slot + 1, generation 0
    return all_.back().get();
  }
  Operation* operation = all_[free_.back()].get();
  free_.pop_back();
  return operation;
}

Operation*& TensorQueue::KeptPlace(uint64_t group, std::string_view name) {
  return kept_[NameHash()(Name{group, name}) % kept_.size()];
}

Operation* TensorQueue::TakeRepeatable(uint64_t group, std::string_view name) {
  const std::lock_guard lock(mutex_);
  Operation*& kept = KeptPlace(group, name);
  if (kept == nullptr || kept->group->key != group || kept->name != name) return nullptr;
  if (auto* known = static_cast<Known*>(kept->memo); known != nullptr) {
    if (known->in_flight != nullptr) return nullptr;
    // engine-Q7: its name is in flight from now on, so that it is not forgotten meanwhile.
    known->in_flight = kept;
    kept->claimed = &known->in_flight;
  }
  return std::exchange(kept, nullptr);
}

void TensorQueue::Empty(Operation* operation) {
  operation->repeats = false;
  operation->inputs.clear();
  operation->outputs.clear();
  operation->name.clear();
  operation->memo = nullptr;
  operation->codec.clear();
  operation->form = {};
  operation->draw = 0;
  operation->feeds_back = false;
  operation->splits.clear();
  operation->peers.clear();
  operation->rows.clear();
  operation->recorded.clear();
  operation->apart.clear();
  operation->gathered.reset();
}

void TensorQueue::Discard(Operation* operation) {
  const std::lock_guard lock(mutex_);
  operation->repeats = false;
  Reuse(operation);
}

void TensorQueue::Reuse(Operation* operation) {
  in_use_.Remove(operation);
  FreeName(operation);
  // engine-Q1: a new generation: the old number names nothing any more.
  operation->handle += uint64_t{1} << kSlotBits;
  operation->status = Status::Ok();
  operation->refusal = Status::Ok();
  operation->callback = nullptr;
  operation->released = false;
  operation->awaited = false;
  operation->waited_for.store(false, std::memory_order_relaxed);
  operation->polled.store(false, std::memory_order_relaxed);
  operation->ended.store(false, std::memory_order_relaxed);
  // engine-Q7: one that ended well stays with its request; the one in its place goes.
  if (operation->repeats) std::swap(operation, KeptPlace(operation->group->key, operation->name));
  if (operation == nullptr) return;
  Empty(operation);
  free_.push_back(static_cast<uint32_t>((operation->handle & kSlotMask) - 1));
}

void TensorQueue::FreeName(Operation* operation) {
  // engine-Q2: the name is free before `ended` is visible: the caller may submit it at once.
  if (operation->claimed != nullptr) *operation->claimed = nullptr;
  operation->claimed = nullptr;
}

TensorQueue::Known& TensorQueue::KnownOf(const Operation& operation) {
  if (operation.memo != nullptr) return *static_cast<Known*>(operation.memo);
  const uint64_t group = operation.group->key;
  const auto it = names_.find(Name{group, operation.name});
  if (it != names_.end()) return *it->second;
  auto known = std::make_unique<Known>();
  known->group = group;
  known->name = operation.name;
  const Name name{group, known->name};
  return *names_.emplace(name, std::move(known)).first->second;
}

Status TensorQueue::Claim(Operation* operation) {
  Known* known = operation->name.empty() ? nullptr : &KnownOf(*operation);
  // engine-Q2: two operations of one name in flight would take different occurrences per rank.
  if (known != nullptr && known->in_flight != nullptr && known->in_flight != operation)
    return Status::InvalidArgument(
        Described(*operation) +
        " is already in flight on this rank: wait for it first, or use another name");
  if (const Operation* other = in_use_.ConflictOf(operation); other != nullptr)
    return Status::InvalidArgument(
        Described(*operation) + " uses memory of " + Described(*other) +
        ", which is in flight on this rank, and one of them writes it: wait for that one first, or "
        "give both in one grouped call");
  in_use_.Add(operation);
  if (known == nullptr) return Status::Ok();
  known->in_flight = operation;
  operation->claimed = &known->in_flight;
  operation->memo = known;
  return Status::Ok();
}

Status TensorQueue::Enter(Operation* operation, uint64_t* handle) {
  if (Status claimed = Claim(operation); !claimed.ok()) {
    Reuse(operation);
    return claimed;
  }
  operation->waits = waits_.load(std::memory_order_relaxed);
  if (operation->awaited) Await(operation);
  *handle = operation->handle;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  return Status::Ok();
}

Status TensorQueue::Submit(Operation* operation, uint64_t* handle) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Enter(operation, handle));
  queued_.push_back(operation);
  queued_count_.fetch_add(1, std::memory_order_release);
  return Status::Ok();
}

Status TensorQueue::SubmitTaken(Operation* operation, uint64_t* handle, bool* is_taken) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Enter(operation, handle));
  // engine-Q8: what was submitted before is taken before.
  *is_taken = queued_.empty();
  if (*is_taken) return Status::Ok();
  queued_.push_back(operation);
  queued_count_.fetch_add(1, std::memory_order_release);
  return Status::Ok();
}

void TensorQueue::Await(Operation* operation) {
  if (!operation->waited_for.exchange(true)) waits_.fetch_add(1);
}

bool TensorQueue::Poll(Operation* operation) {
  if (!operation->polled.exchange(true) || operation->waited_for.exchange(true)) return false;
  waits_.fetch_add(1);
  return true;
}

void TensorQueue::TakeAll(std::vector<Operation*>* taken) {
  taken->clear();
  if (!HasQueued()) return;
  // engine-Q6: until the count says so, too.
  const std::lock_guard lock(mutex_);
  taken->swap(queued_);
  queued_count_.store(0, std::memory_order_release);
}

void TensorQueue::Finish(std::vector<Ended>* ended) {
  if (ended->empty()) return;
  const std::lock_guard lock(mutex_);
  for (Ended& one : *ended) FinishOne(&one);
  ended->clear();
}

void TensorQueue::FinishOne(Ended* ended) {
  Operation* operation = ended->operation;
  FreeName(operation);
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  operation->status = std::move(ended->status);
  // engine-Q7: an error is not repeated.
  operation->repeats &= operation->status.ok();
  if (operation->callback != nullptr) {
    in_use_.Remove(operation);
    callbacks_.push_back(
        {operation->callback, operation->context, operation->handle, operation->status});
    callback_count_.fetch_add(1, std::memory_order_release);
  }
  // engine-Q5: after the results and the status.
  operation->ended.store(true);  // seq_cst: before looking for sleepers (core/engine/engine.cc)
  ReuseIfOver(operation);
}

void TensorQueue::ReuseIfOver(Operation* operation) {
  // engine-Q1: reused only when ended, released and held by no thread.
  if (operation->released && operation->holders == 0 &&
      operation->ended.load(std::memory_order_relaxed))
    Reuse(operation);
}

void TensorQueue::Forget(const std::vector<NameMemo*>& names) {
  if (names.empty()) return;
  const std::lock_guard lock(mutex_);
  // engine-Q7: a request that stays may be of a name that goes.
  for (Operation*& kept : kept_) {
    if (kept == nullptr) continue;
    Operation* operation = std::exchange(kept, nullptr);
    operation->repeats = false;
    Reuse(operation);
  }
  for (NameMemo* memo : names) {
    const auto* known = static_cast<const Known*>(memo);
    if (known->in_flight == nullptr) names_.erase(names_.find(Name{known->group, known->name}));
  }
}

size_t TensorQueue::known_names() {
  const std::lock_guard lock(mutex_);
  return names_.size();
}

void TensorQueue::RunCallbacks() {
  std::vector<Callback> due;
  {
    const std::lock_guard lock(mutex_);
    // engine-Q3: taken out under the lock, so each callback runs once.
    due.swap(callbacks_);
    callback_count_.store(0, std::memory_order_release);
  }
  for (const Callback& c : due) c.function(c.context, c.handle, c.status);
}

Operation* TensorQueue::FindLocked(uint64_t handle) {
  const uint64_t slot = handle & kSlotMask;
  if (slot == 0 || slot > all_.size()) return nullptr;
  Operation* operation = all_[slot - 1].get();
  return operation->handle == handle && !operation->released ? operation : nullptr;
}

Operation* TensorQueue::Find(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  return FindLocked(handle);
}

Operation* TensorQueue::Hold(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  Operation* operation = FindLocked(handle);
  if (operation != nullptr) ++operation->holders;
  return operation;
}

bool TensorQueue::See(uint64_t handle, Status* status) {
  const std::lock_guard lock(mutex_);
  Operation* operation = FindLocked(handle);
  if (operation == nullptr || !operation->ended.load(std::memory_order_acquire)) return false;
  if (!operation->waited_for.load(std::memory_order_relaxed)) Await(operation);
  in_use_.Remove(operation);
  *status = operation->status;
  return true;
}

void TensorQueue::LetGo(Operation* operation, bool is_seen) {
  const std::lock_guard lock(mutex_);
  --operation->holders;
  if (is_seen) in_use_.Remove(operation);
  ReuseIfOver(operation);
}

bool TensorQueue::Release(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  Operation* operation = FindLocked(handle);
  if (operation == nullptr) return false;
  operation->released = true;
  ReuseIfOver(operation);
  return true;
}

bool TensorQueue::ReleaseIfDone(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  Operation* operation = FindLocked(handle);
  if (operation == nullptr || !operation->ended.load(std::memory_order_relaxed)) return false;
  // engine-Q4: a failed operation stays until its status was read.
  if (!operation->status.ok()) return false;
  operation->released = true;
  ReuseIfOver(operation);
  return true;
}

}  // namespace covey
