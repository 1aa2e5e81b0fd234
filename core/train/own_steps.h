// The updates of a rank's own model in a part: since the last publish, and of deltas from where the
// part begins.
#ifndef COVEY_CORE_TRAIN_OWN_STEPS_H_
#define COVEY_CORE_TRAIN_OWN_STEPS_H_

#include <algorithm>
#include <cstdint>

namespace covey {

class OwnSteps {
 public:
  // `end`: the steps with which the part ends.
  OwnSteps(int64_t begin, int64_t end) : end_(end), done_(begin) {}

  int64_t done() const { return done_; }
  // Since the last publish.
  int64_t local() const { return local_; }
  void OnUpdated() { ++done_, ++local_; }
  void OnPublished() { local_ = 0; }
  void Restore(int64_t local) { local_ = local; }
  // A finish() has ended, after which all ranks have done so many.
  void OnMet(int64_t steps) { done_ = steps; }
  bool IsNextTheLast() const { return done_ + 1 == end_; }
  // train-T27: the next part begins where this one ends. `reached`: by the versions applied.
  int64_t Within(int64_t steps, int64_t reached) const {
    return std::min(steps, std::max(reached, end_));
  }

 private:
  int64_t end_, done_, local_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_OWN_STEPS_H_
