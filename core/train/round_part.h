// One rank's way through a part of a training that goes in rounds: which stages follow one that has
// ended. APPLY is READ while there is a version that this rank has not applied.
//
//   stage     ended            stages that follow at once
//   AWAIT     made             APPLY
//   AWAIT     asked            PACK, AWAIT
//   READ      found            UPDATE, APPLY; of an empty version APPLY alone
//   READ      gone             SEEK, UNPACK, APPLY
//   FLUSH     made             APPLY
//   FLUSH     asked            PACK, FLUSH
//   FLUSH     behind, failed   APPLY, FLUSH
//   MEET      asked            PACK, MEET
//   SERVE     asked            PACK
//
// Invariant: every version is applied once, in order; after UNPACK the next one is that after the
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
  // which it does. REQUIRES: the plan is of gradients, in rounds.
  RoundPart(const MethodPlan& plan, int64_t from, int64_t begin);

  int64_t from() const { return from_; }
  // The version of the method that this rank has applied.
  int64_t version() const { return begin_ + static_cast<int64_t>(applied_); }
  // Of these rounds, as the two below.
  uint64_t applied() const { return applied_; }
  uint64_t awaited() const { return awaited_; }
  // A member was overdue in the last version applied.
  bool misses() const { return misses_; }
  // The rounds are over with the first version from the plan's `ending` on in which no member was
  // overdue: all members see it in the same record, and have been in it.
  bool IsOver() const;

  // The table above.
  std::vector<Stage> Follow(Stage stage, const Status& status, const StageResult& result);
  std::vector<Stage> OnUpdated();
  std::vector<Stage> OnUnpacked();

 private:
  std::vector<Stage> Apply(std::vector<Stage> then = {}) const;

  int64_t from_, begin_;
  uint64_t ending_;  // 0: they do not end
  uint64_t applied_ = 0;
  uint64_t awaited_ = 0;
  uint64_t executed_ = 0;  // the last version made, as far as it is known
  uint64_t snapshot_ = 0;  // the version of the one that was taken
  bool misses_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_ROUND_PART_H_
