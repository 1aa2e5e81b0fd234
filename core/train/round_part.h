// One rank's way through a part of a training that goes in rounds: the stages of its steps, and
// which follow one that has ended.
//
//   payload     call      stages
//   gradients   step      GRADIENTS, publish, await, serve
//   gradients   finish    flush, meet
//   deltas      step      GRADIENTS, UPDATE, serve
//   deltas      H-th      GRADIENTS, UPDATE, MODEL, delta, publish, await, adopt, LOAD, serve
//   deltas      finish    flush, meet, adopt, LOAD; after steps since the last publish MODEL,
//                         delta, publish before
//   deltas      first     MODEL, anchor before
//
// APPLY is READ while there is a version that this rank has not applied. GIVE is PACK by gradients.
//
//   stage     ended            stages that follow at once
//   AWAIT     made             APPLY
//   AWAIT     asked            GIVE, AWAIT
//   READ      found            gradients: UPDATE, APPLY; deltas, or an empty version: APPLY
//   READ      gone             gradients: SEEK, UNPACK, APPLY; deltas: SEEK, APPLY
//   FLUSH     made             APPLY
//   FLUSH     asked            GIVE, FLUSH
//   FLUSH     behind, failed   APPLY, FLUSH
//   MEET      asked            GIVE, MEET
//   GO ON     -                APPLY
//   SERVE     asked            GIVE
//
// A finish() that is not strict goes on when FLUSH or MEET has timed out: GO ON; of deltas adopt,
// LOAD; serve.
//
// Invariant: every version is applied once, in order; after SEEK the next one is that after the
// snapshot's.
//
// Sans-IO. One thread at a time.
#ifndef COVEY_CORE_TRAIN_ROUND_PART_H_
#define COVEY_CORE_TRAIN_ROUND_PART_H_

#include <vector>

#include "core/base/status.h"
#include "core/method/method.h"
#include "core/train/stage.h"

namespace covey {

class RoundPart {
 public:
  // `plan` is that of version `from`, where the part begins by the method; `begin`: the step at
  // which it does. REQUIRES: the plan is of gradients or deltas, in rounds.
  RoundPart(const MethodPlan& plan, int64_t from, int64_t begin);

  int64_t from() const { return from_; }
  bool has_deltas() const { return steps_ > 0; }
  // The steps of the method that the versions applied stand for.
  int64_t reached() const { return begin_ + static_cast<int64_t>(applied_) * (steps_ + !steps_); }
  // Of these rounds, as the two below.
  uint64_t applied() const { return applied_; }
  uint64_t awaited() const { return awaited_; }
  // A member was overdue in the last version applied.
  bool misses() const { return misses_; }
  // The rounds are over with the first version from the plan's `ending` on in which no member was
  // overdue: all members see it in the same record, and have been in it.
  bool IsOver() const;

  std::vector<Stage> StepStages() const;
  std::vector<Stage> FinishStages() const;
  std::vector<Stage> GoOnStages() const;
  // The second table above.
  std::vector<Stage> Follow(Stage stage, const Status& status, const StageResult& result);
  std::vector<Stage> OnUpdated();
  std::vector<Stage> OnUnpacked();

  // Deltas, for a checkpoint: the steps since the last publish, and whether all have begun with the
  // same model.
  int64_t local() const { return local_; }
  bool is_anchored() const { return is_anchored_; }
  void Restore(int64_t local, bool is_anchored) {
    local_ = local;
    is_anchored_ = is_anchored;
  }

 private:
  std::vector<Stage> Apply(std::vector<Stage> then = {}) const;
  std::vector<Stage> Begun(std::vector<Stage> stages) const;
  Stage Giving() const { return has_deltas() ? Stage::kGive : Stage::kPack; }

  int64_t from_, begin_;
  uint64_t ending_;  // 0: they do not end
  int64_t steps_;    // of deltas; 0: gradients
  uint64_t applied_ = 0;
  uint64_t awaited_ = 0;
  uint64_t executed_ = 0;  // the last version made, as far as it is known
  uint64_t snapshot_ = 0;  // the version of the one that was taken
  int64_t local_ = 0;
  bool is_anchored_ = false;
  bool misses_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_ROUND_PART_H_
