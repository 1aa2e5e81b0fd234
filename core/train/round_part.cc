#include "core/train/round_part.h"

#include <algorithm>

namespace covey {

RoundPart::RoundPart(const MethodPlan& plan, int64_t from, int64_t begin)
    : from_(from), begin_(begin), ending_(static_cast<uint64_t>(plan.rounds.ending)) {}

bool RoundPart::IsOver() const {
  // train-T7: a member that was overdue would find no other in the version after it.
  return ending_ > 0 && applied_ >= ending_ && !misses_;
}

std::vector<Stage> RoundPart::Follow(Stage stage, const Status& status, const StageResult& result) {
  using Event = StageResult::Event;
  executed_ = std::max(executed_, result.executed);
  const bool is_asked = status.ok() && result.event == Event::kAsked;
  switch (stage) {
    case Stage::kPublish:
      awaited_ = result.version;
      return {};
    case Stage::kAwait:
    case Stage::kMeet:
      if (is_asked) return {Stage::kPack, stage};
      return stage == Stage::kAwait && status.ok() ? Apply() : std::vector<Stage>{};
    case Stage::kFlush:
      if (is_asked) return {Stage::kPack, stage};
      // train-T8: what was made is applied before a finish() fails.
      if (!status.ok()) return Apply({stage});
      return result.event == Event::kMade ? Apply() : Apply({stage});
    case Stage::kRead:
      if (!status.ok()) return {};
      // train-T6: a version that has left the log is not passed over.
      if (result.is_gone) return {Stage::kSeek, Stage::kUnpack};
      misses_ = result.misses;
      return result.is_empty ? OnUpdated() : std::vector<Stage>{Stage::kUpdate};
    case Stage::kSeek:
      // train-T7: with the state comes whether others leave the rounds with its version.
      snapshot_ = result.version;
      misses_ = result.misses;
      return {};
    case Stage::kServe:
      return is_asked ? std::vector<Stage>{Stage::kPack} : std::vector<Stage>{};
    default:
      return {};
  }
}

std::vector<Stage> RoundPart::OnUpdated() {
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
