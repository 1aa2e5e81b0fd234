// The objects behind handles that a user has: found by number while open, and given back some time
// after they were closed, when nothing can touch them any more.
//
// Any thread. REQUIRES: no call uses an object while another one closes it.
//
// An Object has Close(), CanBeFreed(), and totals(), of a type Object::Totals that has +=.
#ifndef COVEY_CORE_BASE_HANDLE_TABLE_H_
#define COVEY_CORE_BASE_HANDLE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace covey {

template <typename Object>
class HandleTable {
 public:
  // Its handle. Numbers begin at the time of the first, so that a handle of an earlier table of
  // this process is not taken for one of this.
  uint64_t Keep(std::unique_ptr<Object> object, Time now) {
    const std::lock_guard lock(mutex_);
    if (last_ == 0) last_ = static_cast<uint64_t>(now);
    open_.emplace(++last_, std::move(object));
    return last_;
  }

  // Null: no such object is open.
  Object* Find(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(handle);
    return found == open_.end() ? nullptr : found->second.get();
  }

  // Nothing happens when there is none.
  void Close(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(handle);
    if (found == open_.end()) return;
    past_ += found->second->totals();
    found->second->Close();
    closed_.push_back(std::move(found->second));
    open_.erase(found);
  }

  // The closed ones that can be freed; they are the caller's.
  std::vector<std::unique_ptr<Object>> TakeUnused() {
    std::vector<std::unique_ptr<Object>> unused;
    const std::lock_guard lock(mutex_);
    if (is_frozen_) return unused;
    for (std::unique_ptr<Object>& object : closed_)
      if (object->CanBeFreed()) unused.push_back(std::move(object));
    std::erase(closed_, nullptr);
    return unused;
  }

  // All that there are, closed ones too. From now on none is given back. Empty the second time.
  std::vector<Object*> Freeze() {
    std::vector<Object*> all;
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_frozen_, true)) return all;
    for (const auto& [handle, object] : open_) all.push_back(object.get());
    for (const std::unique_ptr<Object>& object : closed_) all.push_back(object.get());
    return all;
  }

  // Waits in all open ones end.
  void Interrupt() {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, object] : open_) object->Interrupt();
  }

  // The sum over all that there are and were.
  typename Object::Totals Sum() {
    const std::lock_guard lock(mutex_);
    typename Object::Totals sum = past_;
    for (const auto& [handle, object] : open_) sum += object->totals();
    return sum;
  }

 private:
  std::mutex mutex_;
  // Protected by mutex_.
  std::map<uint64_t, std::unique_ptr<Object>> open_;
  std::vector<std::unique_ptr<Object>> closed_;
  typename Object::Totals past_ = {};  // of closed ones
  uint64_t last_ = 0;
  bool is_frozen_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_HANDLE_TABLE_H_
