#include "core/train/pass_clock.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace covey {
namespace {

constexpr size_t kKept = 9;    // times of which there is the median
constexpr Time kWaitOf = 3;    // a third of a pass or of a period: so long it waits at most, once,
constexpr Time kSlackOf = 10;  // and a tenth: so wrong the time may be

void Keep(Time length, std::deque<Time>* lengths) {
  lengths->push_back(length);
  if (lengths->size() > kKept) lengths->pop_front();
}

Time MedianOf(const std::deque<Time>& lengths) {
  std::vector<Time> sorted(lengths.begin(), lengths.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

void PassClock::End(Time now) {
  if (began_ != kNever) Keep(now - began_, &passes_);
  began_ = kNever;
}

void PassClock::See(uint64_t version, Time at) {
  if (version_ > 0 && version > version_)
    Keep((at - at_) / static_cast<Time>(version - version_), &periods_);
  version_ = version;
  at_ = at;
}

Time PassClock::Patience(uint64_t version, Time now) const {
  if (version_ == 0 || periods_.empty() || passes_.empty() || version < version_) return 0;
  const Time period = MedianOf(periods_);
  const Time length = std::min(period, MedianOf(passes_));
  const Time left = at_ + static_cast<Time>(version - version_) * period - now;
  const Time slack = length / kSlackOf;
  // train-T16: not for one that is far, nor for one that does not come.
  return -slack < left && left < length / kWaitOf ? left + slack : 0;
}

}  // namespace covey
