// How long this rank's own steps take, and from that how long it waits for others unless it was
// told: ten times the median, so that a rank which is only uneven is not found missing; and a small
// part of it once enough have come, so that ranks that are equally fast come together.
#ifndef COVEY_CORE_PARTIAL_STEP_TIME_H_
#define COVEY_CORE_PARTIAL_STEP_TIME_H_

#include <array>
#include <cstddef>

#include "core/base/types.h"

namespace covey {

class StepTime {
 public:
  static constexpr Time kLeast = kSecond;
  static constexpr Time kUnknown = 60 * kSecond;  // first steps may load, compile, page in
  static constexpr int64_t kSteps = 10;
  static constexpr size_t kFewest = 5;  // steps that make a median

  // A step begins: this rank has come back from waiting. Also when it had not waited.
  void OnBegin(Time now) { begun_at_ = now; }
  // It has ended. Nothing when none had begun.
  void OnEnd(Time now);

  // The median; 0: not known yet. A median known elsewhere counts as its first steps, if there are
  // none.
  Time Step() const { return count_ < kFewest ? 0 : Median(); }
  void Assume(Time step);

  Time MaxWait() const;
  // One of so many parts of it; 0 in its first steps.
  Time Grace(int64_t parts) const;

 private:
  Time Median() const;  // REQUIRES: there are steps

  std::array<Time, 31> last_{};
  size_t count_ = 0;  // of all steps
  Time begun_at_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_STEP_TIME_H_
