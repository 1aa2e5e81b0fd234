#include "core/partial/step_time.h"

#include <algorithm>

namespace covey {

void StepTime::OnEnd(Time now) {
  if (begun_at_ == 0) return;
  last_[count_++ % last_.size()] = now - begun_at_;
  begun_at_ = 0;
}

void StepTime::Assume(Time step) {
  if (count_ > 0 || step <= 0) return;
  for (; count_ < kFewest; ++count_) last_[count_] = step;
}

Time StepTime::MaxWait() const {
  if (count_ < kFewest) return kUnknown;
  return std::max(kLeast, kSteps * Median());
}

Time StepTime::Grace(int64_t parts) const { return Step() / parts; }

Time StepTime::Median() const {
  std::array<Time, 31> sorted = last_;
  const auto count = static_cast<std::ptrdiff_t>(std::min(count_, last_.size()));
  std::nth_element(sorted.begin(), sorted.begin() + count / 2, sorted.begin() + count);
  return sorted[static_cast<size_t>(count / 2)];
}

}  // namespace covey
