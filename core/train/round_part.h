// One rank's way through a part of a training that goes in rounds: the stages of its steps, and
// which follow one that has ended.
//
//   payload     call      stages
//   gradients   step      GRADIENTS, publish, await, serve
//   gradients   pass      look; of a version that is due in a moment: due
//   gradients   finish    flush, meet
//   deltas      step      GRADIENTS, UPDATE, serve
//   deltas      H-th      GRADIENTS, UPDATE, MODEL, delta, publish, await, adopt, LOAD, serve
//   deltas      finish    flush, meet, adopt, LOAD; after steps since the last publish MODEL,
//                         delta, publish before
//   deltas      first     MODEL, anchor before
//   models      step      GRADIENTS, UPDATE, serve
//   models      H-th      GRADIENTS, UPDATE, MODEL, publish, await
//   models      finish    MODEL, publish, flush, meet
//   models      first     MODEL, begin before
//
// The H-th is each local_steps-th one, and the last before another part.
//
// APPLY: of gradients and deltas, READ while there is a version that this rank has not applied; of
// models merge, LOAD; none if no version was made. GIVE is PACK by gradients.
//
//   stage     ended            stages that follow at once
//   AWAIT     made             APPLY; of models not when others have left this rank behind
//   AWAIT     asked            GIVE, AWAIT
//   READ      found            gradients: UPDATE, APPLY; deltas, or an empty version: APPLY
//   READ      gone             gradients: SEEK, UNPACK, APPLY; deltas: SEEK, APPLY
//   LOAD      progress kept    offer again
//   FLUSH     made             APPLY
//   FLUSH     asked            GIVE, FLUSH
//   FLUSH     behind, failed   APPLY, FLUSH
//   MEET      asked            GIVE, MEET
//   GO ON     -                APPLY
//   SERVE     asked            GIVE
//   LOOK      -                DUE, of a version that is due in a moment; else as if it had ended
//   DUE       -                APPLY
//
// A finish() that is not strict goes on when FLUSH or MEET has timed out, in a part that has no
// end: GO ON; of deltas adopt, LOAD; serve.
//
// Rounds of gradients that rounds of models follow have no version after their end: await and flush
// last until that one, and no longer.
//
// Invariant: every version of gradients and deltas is applied once, in order; after SEEK the next
// one is that after the snapshot's.
//
// Sans-IO. One thread at a time.
#ifndef COVEY_CORE_TRAIN_ROUND_PART_H_
#define COVEY_CORE_TRAIN_ROUND_PART_H_

#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/method/method.h"
#include "core/train/course.h"
#include "core/train/own_steps.h"
#include "core/train/stage.h"

namespace covey {

class RoundPart {
 public:
  // `plan` is that of version `from`, where the part begins by the method, or the training has been
  // taken up in it; `until` where it ends (kForever: nowhere); `begin`: the step at which it does
  // begin; `origin`: where it begins by the method, if not there. `hands_over`: rounds of models
  // follow, and no rank waits at its end. REQUIRES: it is in rounds.
  RoundPart(const MethodPlan& plan, int64_t from, int64_t until, int64_t begin, int64_t origin,
            bool hands_over = false);

  // The last version of the rounds that begin at `from`, if they are of gradients and handed over
  // to rounds of models; 0: they are not.
  static uint64_t LastVersion(const MethodChoice& choice, const MethodView& view, int64_t from,
                              int64_t end = kForever);

  int64_t from() const { return from_; }
  // Whether each rank does updates of its own.
  bool is_local() const { return payload_ != Payload::kGradients; }
  // The steps of the method that the versions applied stand for.
  int64_t reached() const;
  Payload payload() const { return payload_; }
  OwnSteps* own() { return &own_; }
  // Models: the steps of the method that this rank has done with the contribution it publishes.
  int64_t steps() const { return course_ ? course_->steps() : reached() + own_.local(); }
  // The step that this rank has come to with their last version, or where they end by the method.
  int64_t left_at() const { return left_at_ > 0 ? left_at_ : begin_ + length_; }
  // The last version that this rank has applied; of models: merged with. Counted in these rounds,
  // as are awaited() and merged().
  uint64_t applied() const { return applied_; }
  uint64_t awaited() const { return awaited_; }
  // Models: the version to merge with next.
  uint64_t merged() const { return merged_; }
  // The rounds are over with the first version from the plan's `ending` on in which no member was
  // overdue: all members see it in the same record, and have been in it.
  bool IsOver() const;
  void NoteOver() { left_at_ = reached(); }
  // That is so if all have met, too.
  bool HasEnded() const;
  // finish() may go on without missing members.
  bool MayGoOnWithout() const;
  bool MayEndWith(uint64_t version) const { return ending_ > 0 && version >= ending_; }
  // Rounds of models follow, and `version` is the last before them.
  bool IsLast(uint64_t version) const { return hands_over_ && version >= ending_; }
  bool IsToHandOver() const { return IsLast(applied_); }
  // Late ranks may need this rank's state at the last version applied.
  bool is_needed() const { return is_needed_; }
  // The stage that gives it.
  Stage Giving() const { return payload_ == Payload::kDelta ? Stage::kGive : Stage::kPack; }
  // Since the last publish all that counts has come to be in versions, or others have gone on.
  bool is_finishing() const { return is_finishing_; }

  // The stages of a step that begins `now`.
  std::vector<Stage> StepStages(Time now) const;
  std::vector<Stage> FinishStages() const;
  std::vector<Stage> GoOnStages() const;
  // Whether this rank's next pass is best begun at the last version there is: it was overdue in the
  // last one it has applied, or `skips` ahead by its method.
  bool CatchesUp() const { return !is_local() && (skips_ || is_overdue_); }
  uint64_t executed() const { return executed_; }
  // The second table above.
  std::vector<Stage> Follow(Stage stage, const Status& status, const StageResult& result);
  // An action was done.
  std::vector<Stage> OnDone(Stage stage);
  // A call has ended: after an exchange the rank's own steps begin.
  void OnEnd(Time now) {
    if (local() == 0) began_at_ = now;
  }

  // For a checkpoint: the steps since the last publish, and of deltas whether the replicated model
  // is there. Models begin anew.
  int64_t local() const { return course_ ? course_->done() : own_.local(); }
  bool is_anchored() const { return payload_ == Payload::kDelta && is_anchored_; }
  void Restore(int64_t local, bool is_anchored) {
    own_.Restore(local);
    if (course_) course_->Restore(local);
    is_anchored_ = is_anchored;
  }

 private:
  bool IsDue(Time now) const;
  bool ComesEarly(Time now) const;
  std::vector<Stage> Apply(std::vector<Stage> then = {}) const;
  std::vector<Stage> Begun(std::vector<Stage> stages) const;
  std::vector<Stage> FollowRead(const StageResult& result);
  std::vector<Stage> OnUpdated();
  std::vector<Stage> OnUnpacked();

  Payload payload_;
  int64_t from_, begin_;
  int64_t length_;                // steps of the part; kForever: it does not end
  int64_t steps_;                 // between two versions of a rank
  Time max_wait_;                 // for a version; kNever: its own steps decide
  bool skips_;                    // a late rank goes on with the step after the last version
  uint64_t ending_;               // without a course; 0: they do not end
  std::optional<Course> course_;  // of models with local steps
  bool hands_over_;
  uint64_t applied_ = 0;
  uint64_t awaited_ = 0;
  uint64_t executed_ = 0;  // the last version made, as far as it is known
  uint64_t snapshot_ = 0;  // the version of the one that was taken
  uint64_t merged_ = 0;
  uint64_t step_ = 0;  // models: the last that this rank has published, or was taken to have
  int64_t extra_ =
      0;  // without a course: steps of all ranks, minus versions of this one, as of the
          // last finish(), which makes a version and is no step
  OwnSteps own_;
  Time began_at_ = 0;  // the first step since the last publish
  int64_t left_at_ = 0;
  bool is_anchored_ = false;
  bool misses_ = false;      // a member was overdue in the last version applied, or may have been
  bool is_overdue_ = false;  // this rank, in the last version applied
  bool is_needed_ = false;   // its state, for those that were not in it
  bool is_finishing_ = false;
  bool is_kept_ = false;  // the merge before LOAD has kept progress that others have not seen
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_ROUND_PART_H_
