#include "core/train/round_part.h"

#include <algorithm>
#include <utility>

namespace covey {

RoundPart::RoundPart(const MethodPlan& plan, int64_t from, int64_t until, int64_t begin,
                     int64_t origin, bool hands_over)
    : payload_(plan.payload),
      from_(from),
      begin_(begin),
      length_(until == kForever ? kForever : until - from),
      steps_(is_local() ? std::max<int64_t>(1, plan.rounds.local_steps) : 1),
      max_wait_(plan.rounds.max_wait.kind == Duration::Kind::kTime ? plan.rounds.max_wait.time
                                                                   : kNever),
      skips_(plan.rounds.skips_ahead),
      ending_(static_cast<uint64_t>(plan.rounds.ending)),
      hands_over_(hands_over),
      own_(begin, length_ == kForever ? kForever : begin + length_) {
  if (payload_ == Payload::kModel && plan.rounds.local_steps > 0)
    course_.emplace(origin, until == kForever ? kForever : begin + length_, plan.rounds.local_steps,
                    begin);
  if (ending_ == 0 && length_ != kForever)
    ending_ = static_cast<uint64_t>((length_ + steps_ - 1) / steps_);
}

uint64_t RoundPart::LastVersion(const MethodChoice& choice, const MethodView& view, int64_t from,
                                int64_t end) {
  const int64_t until = choice.Until(from);
  if (view.size == 1 || until >= end) return 0;
  const MethodPlan plan = choice.Plan(view, from), next = choice.Plan(view, until);
  const bool hands_over = plan.admission == Admission::kRounds &&
                          plan.payload == Payload::kGradients &&
                          next.admission == Admission::kRounds && next.payload == Payload::kModel;
  return hands_over ? static_cast<uint64_t>(plan.rounds.ending) : 0;
}

int64_t RoundPart::reached() const {
  if (course_) return course_->at();
  // A late rank of models may have merged with a newer version than that of its step.
  const uint64_t done = payload_ == Payload::kModel ? step_ : applied_;
  const bool is_whole = ending_ > 0 && done >= ending_;
  const auto versions = static_cast<int64_t>(is_whole ? done - ending_ : done);
  const int64_t steps = begin_ + (is_whole ? length_ : 0) + versions * steps_ + extra_;
  return HasEnded() ? std::max(steps, begin_ + length_) : steps;
}

bool RoundPart::HasEnded() const {
  if (course_) return course_->IsAtEnd();
  return ending_ > 0 && applied_ >= ending_;
}

bool RoundPart::IsOver() const {
  // train-T7: a member that was overdue would find no other in the version after it.
  return HasEnded() && !misses_;
}

bool RoundPart::MayGoOnWithout() const {
  // train-T22: elsewhere members that go on and one that comes later part for good.
  return length_ == kForever;
}

// Whether this rank publishes after its next update.
bool RoundPart::IsDue(Time now) const {
  const int64_t done = own_.local() + 1;
  // train-T27: this rank's own steps say where the part ends, whichever versions others have made.
  if (!course_) return done >= steps_ || own_.IsNextTheLast();
  // train-T11: a rank that is not waited for comes into step with the others: as soon as the
  // version it works for is made, else one step early.
  return course_->left() <= 1 || (is_overdue_ && (executed_ > step_ || ComesEarly(now)));
}

// Not where two of its steps take as long as it waits for others: those that it waits for would be
// missing then.
bool RoundPart::ComesEarly(Time now) const {
  return course_->left() == 2 && (now - began_at_) / (course_->done() + 1) * 2 < max_wait_;
}

std::vector<Stage> RoundPart::StepStages(Time now) const {
  if (!is_local()) return {Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kServe};
  std::vector<Stage> stages{Stage::kCollectGradients, Stage::kUpdate};
  if (!IsDue(now))
    stages.push_back(Stage::kServe);
  else if (payload_ == Payload::kModel)
    stages.insert(stages.end(), {Stage::kCollectModel, Stage::kPublish, Stage::kAwait});
  else
    stages.insert(stages.end(), {Stage::kCollectModel, Stage::kDelta, Stage::kPublish,
                                 Stage::kAwait, Stage::kAdopt, Stage::kLoadModel, Stage::kServe});
  return Begun(std::move(stages));
}

std::vector<Stage> RoundPart::FinishStages() const {
  if (!is_local()) return {Stage::kFlush, Stage::kMeet};
  if (payload_ == Payload::kModel)
    return Begun({Stage::kCollectModel, Stage::kPublish, Stage::kFlush, Stage::kMeet});
  // train-T10: what was done since the last exchange counts, too.
  if (own_.local() > 0)
    return {Stage::kCollectModel, Stage::kDelta, Stage::kPublish,  Stage::kFlush,
            Stage::kMeet,         Stage::kAdopt, Stage::kLoadModel};
  return Begun({Stage::kFlush, Stage::kMeet, Stage::kAdopt, Stage::kLoadModel});
}

std::vector<Stage> RoundPart::GoOnStages() const {
  std::vector<Stage> stages{Stage::kGoOn, Stage::kServe};
  if (payload_ == Payload::kDelta)
    stages.insert(stages.begin() + 1, {Stage::kAdopt, Stage::kLoadModel});
  return payload_ == Payload::kModel ? stages : Apply(stages);
}

std::vector<Stage> RoundPart::Begun(std::vector<Stage> stages) const {
  const Stage begin = payload_ == Payload::kModel ? Stage::kBegin : Stage::kAnchor;
  if (!is_anchored_) stages.insert(stages.begin(), {Stage::kCollectModel, begin});
  return stages;
}

std::vector<Stage> RoundPart::Follow(Stage stage, const Status& status, const StageResult& result) {
  using Event = StageResult::Event;
  executed_ = std::max(executed_, result.executed);
  const bool is_asked = status.ok() && result.event == Event::kAsked;
  switch (stage) {
    case Stage::kAnchor:
    case Stage::kBegin:
      is_anchored_ = true;
      return {};
    case Stage::kPublish:
      // Models: one that is unfit is not published, and no version is waited for.
      awaited_ = merged_ = result.version;
      // train-T18: a version after the last one is not made.
      if (hands_over_) awaited_ = std::min(awaited_, ending_);
      own_.OnPublished();
      if (course_) course_->OnPublished(step_);
      is_finishing_ = false;
      return {};
    case Stage::kAwait:
      if (is_asked) return {Giving(), stage};
      if (!status.ok()) return {};
      return payload_ == Payload::kModel && (result.is_left || awaited_ == 0) ? std::vector<Stage>{}
                                                                              : Apply();
    case Stage::kMeet:
      return is_asked ? std::vector<Stage>{Giving(), stage} : std::vector<Stage>{};
    case Stage::kFlush:
      if (is_asked) return {Giving(), stage};
      is_finishing_ = true;
      merged_ = executed_;
      // train-T8: what was made is applied before a finish() fails.
      if (!status.ok()) return Apply({stage});
      return result.event == Event::kMade ? Apply() : Apply({stage});
    case Stage::kRead:
      return status.ok() ? FollowRead(result) : std::vector<Stage>{};
    case Stage::kSeek:
      if (!status.ok()) return {};
      snapshot_ = result.version;
      misses_ = result.misses;
      is_overdue_ = result.is_overdue;
      is_needed_ = false;
      return payload_ == Payload::kDelta ? OnUnpacked() : std::vector<Stage>{};
    case Stage::kMerge:
      if (!status.ok()) return {};
      applied_ = result.version;
      step_ = result.own_step;
      if (course_ && !is_finishing_) course_->OnMerged(step_);
      // train-T4: after finish() all go on with the step of the member that has done most.
      if (course_ && is_finishing_) course_->OnFinished(result.steps);
      if (!course_ && is_finishing_ && result.steps > 0)
        extra_ += std::max(result.steps, HasEnded() ? begin_ + length_ : 0) - reached();
      misses_ = result.misses;
      is_overdue_ = result.is_overdue;
      is_kept_ = result.is_kept && !is_finishing_;
      return {};
    case Stage::kOfferAgain:
      step_ = result.own_step;
      if (course_) course_->OnMerged(step_);
      return {};
    case Stage::kGoOn:
      merged_ = executed_;
      return Apply();
    case Stage::kDue:
      return Apply();
    case Stage::kServe:
      return is_asked ? std::vector<Stage>{Giving()} : std::vector<Stage>{};
    default:
      return {};
  }
}

std::vector<Stage> RoundPart::FollowRead(const StageResult& result) {
  const bool is_own = payload_ == Payload::kDelta;
  // train-T6: a version that has left the log is not passed over.
  if (result.is_gone && is_own) return {Stage::kSeek};
  if (result.is_gone) return {Stage::kSeek, Stage::kUnpack};
  misses_ = result.misses;
  is_needed_ = result.is_needed;
  if (payload_ == Payload::kGradients) is_overdue_ = result.is_overdue;
  if (!result.is_empty && !is_own) return {Stage::kUpdate};
  ++applied_;
  return Apply();
}

std::vector<Stage> RoundPart::OnDone(Stage stage) {
  switch (stage) {
    case Stage::kUpdate:
      return OnUpdated();
    case Stage::kUnpack:
      return OnUnpacked();
    case Stage::kLoadModel:
      // train-T12: progress that was kept is offered at once, so that the others have it.
      return std::exchange(is_kept_, false) ? std::vector<Stage>{Stage::kOfferAgain}
                                            : std::vector<Stage>{};
    default:
      return {};
  }
}

std::vector<Stage> RoundPart::OnUpdated() {
  if (is_local()) {
    // train-T27: by these its part ends.
    own_.OnUpdated();
    if (course_) course_->OnUpdated();
    return {};
  }
  ++applied_;
  return Apply();
}

std::vector<Stage> RoundPart::OnUnpacked() {
  applied_ = snapshot_;
  return Apply();
}

std::vector<Stage> RoundPart::Apply(std::vector<Stage> then) const {
  if (payload_ == Payload::kModel) {
    if (executed_ > 0) then.insert(then.begin(), {Stage::kMerge, Stage::kLoadModel});
  } else if (applied_ < executed_) {
    then.insert(then.begin(), Stage::kRead);
  }
  return then;
}

}  // namespace covey
