// From one part of a training to the next.
#include <algorithm>

#include "core/train/trainer.h"

namespace covey {
namespace {

// Of max_wait=auto: these exchanges wait for all, so the length of a rank's own step says nothing.
constexpr Time kAutoWait = 60 * kSecond;

Time WaitOf(const Duration& wait) {
  if (wait.kind == Duration::Kind::kOff) return kNever;
  return wait.kind == Duration::Kind::kAuto ? kAutoWait : wait.time;
}

// Rounds are over for this rank.
std::vector<Stage> LeaveStages(const RoundPart& rounds, bool vacates) {
  std::vector<Stage> stages;
  // train-T18: a rank that was in finish() may come later, and needs the state at that version.
  if (rounds.is_needed()) stages = {rounds.Giving(), Stage::kLeaveState};
  // train-T21: the adapter's tensors leave the memory before it ends.
  if (vacates) stages.push_back(Stage::kVacate);
  stages.push_back(Stage::kLeave);
  return stages;
}

}  // namespace

std::vector<int64_t> Trainer::PartsOf(Admission admission, const MethodChoice& choice,
                                      const MethodView& view, int64_t begin, int64_t end) {
  std::vector<int64_t> parts;
  if (view.size == 1) return parts;
  for (int64_t version = begin; version < end; version = choice.Until(version))
    if (choice.Plan(view, version).admission == admission) parts.push_back(version);
  return parts;
}

int64_t Trainer::part() const {
  if (rounds_.has_value()) return rounds_->from();
  return pairs_.has_value() ? pairs_->from() : kNoPart;
}

// If the next step is the first one of rounds or pairs.
void Trainer::BeginPart() {
  const bool is_within = rounds_.has_value() || pairs_.has_value();
  if (view_.size == 1 || is_within || step_ >= options_.end) return;
  int64_t from = options_.begin;
  while (choice_.Until(from) <= step_) from = choice_.Until(from);
  const MethodPlan plan = choice_.Plan(view_, from);
  if (plan.admission == Admission::kPairs) pairs_.emplace(from, choice_.Until(from));
  if (plan.admission != Admission::kRounds) return;
  const bool hands_over = RoundPart::LastVersion(choice_, view_, from, options_.end) > 0;
  int64_t origin = 0;
  while (choice_.Until(origin) <= from) origin = choice_.Until(origin);
  rounds_.emplace(plan, from, choice_.Until(from), step_, origin, hands_over);
  version_ = step_;
}

// How long this rank waits in an exchange of all members, or with neighbors.
Time Trainer::Wait() const {
  if (phase_ != Phase::kExchange) return kNever;
  if (IsOfRounds(stages_[at_]) || IsOfPairs(stages_[at_])) return kNever;
  const MethodPlan plan = Plan();
  const bool is_near = plan.admission == Admission::kNeighbors;
  return is_near ? WaitOf(plan.neighbors.max_wait) : waiting_.limit;
}

// A stage has ended, and a part may have with it.
void Trainer::EndPart() {
  BeginHandOver();
  const bool is_last = part() != kNoPart && choice_.Until(part()) >= options_.end;
  if (++at_ == stages_.size() && rounds_.has_value() && !is_last) {
    // train-T7: where ranks have work of their own they end a part as by finish(), so that all have
    // it, wherever they are. Members that were in finish() have not read that version's record.
    const bool is_to_meet = rounds_->is_local() && !has_met_;
    const bool is_ended = has_met_ && rounds_->HasEnded();
    if (rounds_->IsOver() && !has_met_) rounds_->NoteOver();
    if (is_to_meet && rounds_->IsOver()) Insert(rounds_->FinishStages());
    if (is_ended || (!is_to_meet && rounds_->IsOver()))
      Insert(LeaveStages(*rounds_, options_.vacates));
  }
  // train-T13: all members of pairs begin the next part with the mean of all. A pass ends no step.
  const bool is_in_pairs = pairs_.has_value() && !is_finish_ && !is_pass_ && !is_last;
  if (at_ == stages_.size() && is_in_pairs && pairs_->IsLast(step_)) {
    Insert(pairs_->FinishStages());
    stages_.push_back(Stage::kQuit);
    const std::vector<Stage> state = options_.has_state ? StateStages() : std::vector<Stage>{};
    stages_.insert(stages_.end(), state.begin(), state.end());
  }
  if (at_ == stages_.size() && is_finish_ && std::exchange(has_left_, false)) {
    // train-T7, train-T17: a member that has left the rounds in a step calls finish(), or settle(),
    // in the next part.
    BeginPart();
    Insert(FinishStages());
  }
  // train-T18: one that was in finish() may come later, and needs the state at that version.
  const bool is_over = at_ == stages_.size() && rounds_.has_value() && IsOver();
  if (is_over && rounds_->is_needed() && handover_.given != rounds_->applied()) {
    handover_.given = rounds_->applied();
    Insert({rounds_->Giving(), Stage::kLeaveState});
  }
  // train-T18: those that come later find the state that was left.
  const bool is_end = at_ == stages_.size() && is_finish_;
  if (is_end && handover_.past != kNoPart) stages_.push_back(Stage::kRelease);
}

Trainer::Ready Trainer::OnPairsEnd(const Status& status, const StageResult& result, Time now) {
  const Stage stage = stages_[at_];
  const bool goes_on = end_ == End::kGoesOn && is_finish_ && status.code() == StatusCode::kTimeout;
  if (goes_on) {
    unfit_ = status.message();
    stages_.resize(at_ + 1);
  }
  Insert(pairs_->Follow(stage, status, result, !goes_on));
  if (IsMeeting(stage) && !status.ok() && !goes_on) late_ = status;
  if (stage == Stage::kQuit) {
    // train-T20: the max_wait of these pairs holds up to the end of the call.
    waiting_.limit = WaitOf(choice_.Plan(view_, pairs_->from()).pairs.max_wait);
    pairs_.reset();
  }
  if (status.ok() || IsMeeting(stage)) return Next(now);
  return Halt(status, true);
}

// ---- Rounds that all leave ----------------------------------------------------------------------

void Trainer::LeaveRounds() {
  // train-T7: all members leave with the same version, and go on with the step after it.
  step_ = version_ = rounds_->is_local() ? rounds_->left_at() : rounds_->reached();
  // train-T20: their max_wait holds up to the end of the call.
  waiting_.limit = WaitOf(choice_.Plan(view_, rounds_->from()).rounds.max_wait);
  // A member that is in finish() has not seen with which version they were over.
  if (rounds_->is_local()) {
    if (options_.has_state) Insert(StateStages());
    Insert({Stage::kAgree});
  }
  if (handover_.past != kNoPart) Insert({Stage::kRelease});
  has_left_ = true;
  handover_.has_more = false;
  may_differ_ = false;
  rounds_.reset();
}

// ---- Rounds that each leaves by itself ----------------------------------------------------------

// With the last version before rounds of models.
void Trainer::BeginHandOver() {
  // train-T18: no rank waits there, whichever others are overdue.
  if (!rounds_.has_value() || !rounds_->IsToHandOver() || handover_.has_begun) return;
  handover_.has_begun = true;
  // train-T18: the stages of these rounds that are left are dropped: finish() does not meet here.
  stages_.resize(std::min(at_ + 1, stages_.size()));
  // train-T18: late ranks find the state.
  if (rounds_->is_needed()) Insert({Stage::kPack, Stage::kLeaveState});
  stages_.push_back(Stage::kHandOver);
}

// The call goes on in the rounds of models.
void Trainer::HandOver(const StageResult& result) {
  handover_.past = rounds_->from();
  handover_.has_more = result.has_more;
  if (!rounds_->is_needed()) Insert({Stage::kRelease});
  // train-T21: the adapter's tensors leave the memory first.
  if (options_.vacates) Insert({Stage::kVacate});
  const int64_t from = choice_.Until(rounds_->from());
  step_ = version_ = rounds_->reached();
  rounds_.emplace(choice_.Plan(view_, from), from, choice_.Until(from), step_, from);
  has_left_ = !is_finish_;
  late_ = Status::Ok();
  std::vector<Stage> stages;
  if (is_finish_) stages = rounds_->FinishStages();
  if (is_finish_ && result.has_more) stages.insert(stages.begin() + 2, Stage::kUpdate);
  // train-T18: a gradient that no version has is an update of this rank's own.
  if (!is_finish_ && result.has_more) {
    stages = rounds_->StepStages(0);
    std::erase(stages, Stage::kCollectGradients);
  }
  stages_.insert(stages_.end(), stages.begin(), stages.end());
}

// ---- The end of the trainer ---------------------------------------------------------------------

bool Trainer::IsOver() const {
  if (!rounds_.has_value()) return step_ >= options_.end;
  const bool is_last = options_.end < kForever && choice_.Until(rounds_->from()) >= options_.end;
  return is_last && (rounds_->IsOver() || (has_met_ && rounds_->HasEnded()));
}

}  // namespace covey
