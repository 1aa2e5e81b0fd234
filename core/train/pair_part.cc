#include "core/train/pair_part.h"

#include <utility>

namespace covey {

std::vector<Stage> PairPart::BeginStages() const { return {Stage::kCollectModel, Stage::kEnter}; }

std::vector<Stage> PairPart::StepStages() const {
  return Begun({Stage::kCollectGradients, Stage::kUpdate, Stage::kTurn});
}

std::vector<Stage> PairPart::FinishStages() const {
  return Begun({Stage::kCollectModel, Stage::kMean, Stage::kLoadModel});
}

std::vector<Stage> PairPart::SettleStages() const {
  return Begun({Stage::kCollectModel, Stage::kSettle, Stage::kLoadModel});
}

std::vector<Stage> PairPart::Begun(std::vector<Stage> stages) const {
  const std::vector<Stage> begin = BeginStages();
  if (!has_begun_) stages.insert(stages.begin(), begin.begin(), begin.end());
  return stages;
}

std::vector<Stage> PairPart::Follow(Stage stage, const Status& status, const StageResult& result,
                                    bool is_strict) {
  if (stage == Stage::kEnter) has_begun_ = true;
  if (stage == Stage::kTurn && result.is_due)
    return {Stage::kCollectModel, Stage::kPair, Stage::kLoadModel};
  if (!IsMeeting(stage) || status.ok()) return {};
  if (status.code() == StatusCode::kTimeout && !is_strict)
    return {Stage::kSeenMean, Stage::kLoadModel};
  return {Stage::kLoadModel, stage};
}

}  // namespace covey
