// The end of an epoch in a group, as one of its ranks waits for it. Every member finishes, then
// applies what all had, and trains on when all that live have applied it: until then a member may
// need the snapshot of another, or read its model.
//
//   phase       entered when this rank     a member is missing until it has
//   kTrains     trains on                  (none is)
//   kFinishes   has finished               finished as often, at one moment for all
//   kApplies    has applied what all had   applied it as often
//
// A member that is lost or has left is missing in no phase. After max_wait in a phase the wait ends
// with kTimeout, which names the missing.
//
// Sans-IO: how far members are is asked of the caller, which reads words of shared memory or has
// heard it; time is an argument. One thread at a time.
#ifndef COVEY_CORE_BASE_GROUP_BARRIER_H_
#define COVEY_CORE_BASE_GROUP_BARRIER_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace covey {

// Member indices for which `has_passed(index)` is false, in order.
template <typename HasPassed>
std::vector<int32_t> MissingMembers(int32_t size, const HasPassed& has_passed) {
  std::vector<int32_t> missing;
  for (int32_t i = 0; i < size; ++i)
    if (!has_passed(i)) missing.push_back(i);
  return missing;
}

class GroupBarrier {
 public:
  enum class Phase : uint8_t { kTrains, kFinishes, kApplies };

  // `group` outlives it. `bundle` is named in messages.
  GroupBarrier(std::string bundle, const Group* group)
      : bundle_(std::move(bundle)), group_(group) {}

  Phase phase() const { return phase_; }
  // max_wait counts from now on. False: this rank is in that phase, and its time runs on.
  bool Enter(Phase phase, Time now);
  // After a time-out: in the same phase max_wait counts from now on.
  void Restart(Time now) { since_ = now; }
  // How long this rank still waits in its phase; 0: max_wait is over.
  Time Left(Time max_wait, Time now) const;

  // "rank 3, 5"; `none` where no member is missing.
  std::string Names(const std::vector<int32_t>& missing, std::string_view none = "") const;
  // With the first of the missing as its peer. `then`: what the user may do, or what holds now.
  Status TimedOut(const std::vector<int32_t>& missing, Time max_wait, std::string_view then) const;

 private:
  std::string bundle_;
  const Group* group_;
  Phase phase_ = Phase::kTrains;
  Time since_ = 0;  // when this rank entered it, or began to wait anew
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_GROUP_BARRIER_H_
