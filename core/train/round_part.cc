#include "core/train/round_part.h"

#include <algorithm>

namespace covey {

RoundPart::RoundPart(const MethodPlan& plan, int64_t from, int64_t begin)
    : from_(from),
      begin_(begin),
      ending_(static_cast<uint64_t>(plan.rounds.ending)),
      steps_(plan.payload == Payload::kDelta ? plan.rounds.local_steps : 0) {}

bool RoundPart::IsOver() const {
  // train-T7: a member that was overdue would find no other in the version after it.
  return ending_ > 0 && applied_ >= ending_ && !misses_;
}

std::vector<Stage> RoundPart::StepStages() const {
  if (!has_deltas())
    return {Stage::kCollectGradients, Stage::kPublish, Stage::kAwait, Stage::kServe};
  if (local_ + 1 < steps_) return Begun({Stage::kCollectGradients, Stage::kUpdate, Stage::kServe});
  return Begun({Stage::kCollectGradients, Stage::kUpdate, Stage::kCollectModel, Stage::kDelta,
                Stage::kPublish, Stage::kAwait, Stage::kAdopt, Stage::kLoadModel, Stage::kServe});
}

std::vector<Stage> RoundPart::FinishStages() const {
  if (!has_deltas()) return {Stage::kFlush, Stage::kMeet};
  // train-T10: what was done since the last exchange counts, too.
  if (local_ > 0)
    return {Stage::kCollectModel, Stage::kDelta, Stage::kPublish,  Stage::kFlush,
            Stage::kMeet,         Stage::kAdopt, Stage::kLoadModel};
  return Begun({Stage::kFlush, Stage::kMeet, Stage::kAdopt, Stage::kLoadModel});
}

std::vector<Stage> RoundPart::GoOnStages() const {
  std::vector<Stage> stages{Stage::kGoOn, Stage::kServe};
  if (has_deltas()) stages.insert(stages.begin() + 1, {Stage::kAdopt, Stage::kLoadModel});
  return Apply(stages);
}

std::vector<Stage> RoundPart::Begun(std::vector<Stage> stages) const {
  if (!is_anchored_) stages.insert(stages.begin(), {Stage::kCollectModel, Stage::kAnchor});
  return stages;
}

std::vector<Stage> RoundPart::Follow(Stage stage, const Status& status, const StageResult& result) {
  using Event = StageResult::Event;
  executed_ = std::max(executed_, result.executed);
  const bool is_asked = status.ok() && result.event == Event::kAsked;
  switch (stage) {
    case Stage::kAnchor:
      is_anchored_ = true;
      return {};
    case Stage::kPublish:
      awaited_ = result.version;
      local_ = 0;
      return {};
    case Stage::kAwait:
    case Stage::kMeet:
      if (is_asked) return {Giving(), stage};
      return stage == Stage::kAwait && status.ok() ? Apply() : std::vector<Stage>{};
    case Stage::kFlush:
      if (is_asked) return {Giving(), stage};
      // train-T8: what was made is applied before a finish() fails.
      if (!status.ok()) return Apply({stage});
      return result.event == Event::kMade ? Apply() : Apply({stage});
    case Stage::kRead:
      if (!status.ok()) return {};
      // train-T6: a version that has left the log is not passed over.
      if (result.is_gone && has_deltas()) return {Stage::kSeek};
      if (result.is_gone) return {Stage::kSeek, Stage::kUnpack};
      misses_ = result.misses;
      if (!result.is_empty && !has_deltas()) return {Stage::kUpdate};
      ++applied_;
      return Apply();
    case Stage::kSeek:
      if (!status.ok()) return {};
      // train-T7: with the state comes whether others leave the rounds with its version.
      snapshot_ = result.version;
      misses_ = result.misses;
      return has_deltas() ? OnUnpacked() : std::vector<Stage>{};
    case Stage::kGoOn:
      return Apply();
    case Stage::kServe:
      return is_asked ? std::vector<Stage>{Giving()} : std::vector<Stage>{};
    default:
      return {};
  }
}

std::vector<Stage> RoundPart::OnUpdated() {
  if (has_deltas()) {
    ++local_;
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
  if (applied_ < executed_) then.insert(then.begin(), Stage::kRead);
  return then;
}

}  // namespace covey
