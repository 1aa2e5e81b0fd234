#include "core/train/course.h"

namespace covey {

int64_t Course::After(int64_t at, int64_t versions) const {
  if (versions < 1) return at;
  const int64_t begin = at < until_ ? begin_ : until_;
  const int64_t end = begin + ((at - begin) / length_ + versions) * length_;
  if (at >= until_ || end <= until_) return end;
  const int64_t done = (until_ - begin - 1) / length_ - (at - begin) / length_ + 1;
  return until_ + (versions - done) * length_;
}

void Course::OnPublished(uint64_t step) {
  published_at_ = at_;
  step_ = step;
  done_ = 0;
}

void Course::OnMerged(uint64_t own_step) {
  at_ = After(published_at_, static_cast<int64_t>(own_step - step_));
}

}  // namespace covey
