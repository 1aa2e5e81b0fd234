// One rank's way through a part of a training whose models are averaged in pairs: the stages of its
// steps, and which follow one that has ended.
//
//   call      stages
//   step      GRADIENTS, UPDATE, turn
//   finish    MODEL, mean, LOAD
//   settle    MODEL, settle, LOAD
//   first     MODEL, enter before; these alone before a pass
//
//   stage     ended                 stages that follow at once
//   TURN      due                   MODEL, pair, LOAD
//   MEAN      failed                LOAD, MEAN: the rank's own model, then the failure
//   MEAN      timed out, not strict SEEN MEAN, LOAD
//   SETTLE    failed                LOAD, SETTLE: likewise
//
// No rank waits but in MEAN and SETTLE. The last step of the part is followed by the stages of
// finish(), and QUIT: so all members begin the next part with one model.
//
// Sans-IO. One thread at a time.
#ifndef COVEY_CORE_TRAIN_PAIR_PART_H_
#define COVEY_CORE_TRAIN_PAIR_PART_H_

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/method/method.h"
#include "core/train/stage.h"

namespace covey {

class PairPart {
 public:
  // It begins at step `from` by the method, and ends before `until` (kForever: nowhere).
  PairPart(int64_t from, int64_t until) : from_(from), until_(until) {}

  int64_t from() const { return from_; }
  // Whether `step` is the last one of the part.
  bool IsLast(int64_t step) const { return step + 1 >= until_; }

  bool has_begun() const { return has_begun_; }
  std::vector<Stage> BeginStages() const;
  std::vector<Stage> StepStages() const;
  std::vector<Stage> FinishStages() const;
  std::vector<Stage> SettleStages() const;
  // The second table above.
  std::vector<Stage> Follow(Stage stage, const Status& status, const StageResult& result,
                            bool is_strict);

 private:
  std::vector<Stage> Begun(std::vector<Stage> stages) const;

  int64_t from_, until_;
  bool has_begun_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_PAIR_PART_H_
