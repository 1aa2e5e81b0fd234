// When the next version is due, for a rank that would come too late for it anyway.
//
// A rank that begins a pass shortly before a version ends computes a whole pass for it and comes
// late by nearly as much, and so at the next one. If it waits until that version has ended it
// begins with the others, at the newest parameters, and is in time from then on. It waits for a
// small part of a pass only, and only where the version is due by what it has seen of those before.
//
// Pure; times are the caller's.
#ifndef COVEY_CORE_TRAIN_PASS_CLOCK_H_
#define COVEY_CORE_TRAIN_PASS_CLOCK_H_

#include <cstdint>
#include <deque>

#include "core/base/clock.h"

namespace covey {

class PassClock {
 public:
  // A pass begins; it has ended, with a step.
  void Begin(Time now) { began_ = now; }
  void End(Time now);
  // `version` ended at `at`, so far the last.
  void See(uint64_t version, Time at);
  // How long to wait for `version`, the next one, before a pass begins; 0: not at all.
  Time Patience(uint64_t version, Time now) const;

 private:
  Time began_ = kNever;
  std::deque<Time> passes_, periods_;  // the last ones
  uint64_t version_ = 0;               // 0: none was seen
  Time at_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_PASS_CLOCK_H_
