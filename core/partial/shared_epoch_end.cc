#include "core/partial/shared_epoch_end.h"

#include <utility>

#include "core/base/group_barrier.h"

namespace covey {

SharedEpochEnd::SharedEpochEnd(int32_t self, const Parts& parts, const RoundMemory* memory,
                               SharedAtomics* words)
    : self_(self),
      parts_(parts),
      memory_(memory),
      words_(words),
      lost_(static_cast<size_t>(memory->size()), false) {}

// Whether others have ended finish() without this rank, and none of them trains on.
bool SharedEpochEnd::IsBehind() {
  bool any = false;
  if (!parts_.arrivals->HasEnded(lost_, &any)) return false;
  return !MemberStatus{words_->Load(memory_->MemberAt(self_))}.finished();
}

bool SharedEpochEnd::DropsStep() {
  const bool has_waited = is_held_back_ && parts_.arrivals->over();
  // partial-W8c: a rank that the others went on without makes no version alone.
  is_held_back_ = IsBehind();
  if (is_held_back_) {
    ++dropped_;
    // partial-W8d: it has waited for the others for max_wait, and does not for each further step.
    if (!has_waited) parts_.arrivals->Restart();
  } else {
    keeps_snapshot_ = false;
  }
  return is_held_back_;
}

void SharedEpochEnd::Finish() {
  uint64_t* word = memory_->MemberAt(self_);
  const MemberStatus status{words_->Load(word)};
  if (!status.finished()) words_->Store(word, status.word + 1);
  if (!status.finished() || parts_.arrivals->over())
    parts_.arrivals->Restart();           // else it waits on
  words_->Ring(memory_->EventCountAt());  // it may have been the one they waited for
}

// It is dead, or touches no block any more.
bool SharedEpochEnd::IsGone(int32_t member) const {
  return lost_[static_cast<size_t>(member)] || words_->Load(memory_->LeftAt(self_, member)) != 0;
}

std::vector<int32_t> SharedEpochEnd::Unfinished() {
  const uint64_t times = MemberStatus{words_->Load(memory_->MemberAt(self_))}.times();
  return MissingMembers(memory_->size(), [&](int32_t i) {
    return MemberStatus{words_->Load(memory_->MemberAt(i))}.times() >= times || IsGone(i);
  });
}

bool SharedEpochEnd::GoOnWithout() {
  keeps_snapshot_ = true;
  Meet();
  const bool has_models = memory_->models().on();
  const uint64_t times = MemberStatus{words_->Load(memory_->MemberAt(self_))}.times();
  const StateWord state = StateWord::Of(words_->Load(memory_->StateAt()));
  if (state.fired) return false;
  if (!has_models && IsAnyBehindLog(state.executed)) parts_.snapshots->AskFor(state.executed);
  if (state.settled() && state.Since(times) <= 0) {
    // partial-W8c: it ends with that version, and what it has published since is in none.
    NoteSettled(state);
    return true;
  }
  if ((has_models && !state.final) || HasAnyTrainedOn(times)) return true;  // it goes with them
  const StateWord settled{.executed = state.executed,
                          .times = static_cast<uint32_t>(times) % (1u << StateWord::kTimesBits),
                          .expired = true,
                          .final = true};
  return words_->CompareExchange(memory_->StateAt(), state.Word(), settled.Word());
}

// Whether a member that lives has published since it had finished so often.
bool SharedEpochEnd::HasAnyTrainedOn(uint64_t times) {
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const MemberStatus other{words_->Load(memory_->MemberAt(i))};
    if (lost_[static_cast<size_t>(i)]) continue;
    if (other.times() > times || (other.times() == times && !other.finished())) return true;
  }
  return false;
}

// Gradients: drops its contributions that the settled version has not.
void SharedEpochEnd::NoteSettled(const StateWord& state) {
  settled_ = state.executed;
  bool any = false;
  if (memory_->models().on() || !parts_.arrivals->HasEnded(lost_, &any)) return;
  const SlotWord slot = parts_.slot->offered();
  if (parts_.slot->Retract() != nullptr)
    dropped_ += memory_->Header(self_, slot.buffer)->content.count;
}

// Whether another member will not find its next version, when `last` is the last one.
bool SharedEpochEnd::IsAnyBehindLog(uint64_t last) const {
  for (int32_t i = 0; i < memory_->size(); ++i) {
    if (i == self_ || IsGone(i)) continue;
    if (words_->Load(memory_->AppliedAt(i)) + memory_->log() < last) return true;
  }
  return false;
}

bool SharedEpochEnd::LacksSnapshot(uint64_t version) {
  return IsAnyBehindLog(version) && !parts_.snapshots->HasOffer(version);
}

bool SharedEpochEnd::IsFlushed() {
  const StateWord seen = StateWord::Of(words_->Load(memory_->StateAt()));
  if (seen.settled()) NoteSettled(seen);
  if (!Unfinished().empty()) return false;
  const uint64_t times = MemberStatus{words_->Load(memory_->MemberAt(self_))}.times();
  // partial-W8e: it may have finished again since that version.
  const bool ends_there = seen.settled() && seen.Since(times) <= 0;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const SlotWord slot = SlotWord::Of(words_->Load(memory_->SlotAt(i)));
    // A dead member's model is in no version (partial-W14).
    const MemberStatus status{words_->Load(memory_->MemberAt(i))};
    const bool is_left = !memory_->models().on() || status.finished();
    // partial-W8c: its epoch ends with the settled version, whatever has been published since.
    if (slot.state == SlotState::kPublished && is_left && !ends_there) return false;
  }
  // After the slots, which a version under way may have taken. partial-W8b: of models it is final.
  const StateWord state = StateWord::Of(words_->Load(memory_->StateAt()));
  return !state.fired && (state.final || !memory_->models().on());
}

SharedEpochEnd::Donors SharedEpochEnd::FindDonors() {
  Donors donors;
  std::vector<uint64_t> needs;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    if (i == self_ || IsGone(i)) continue;
    needs.push_back(parts_.snapshots->NeedOf(i));
    if (needs.back() % 2 == 1) continue;
    donors.any = true;
    donors.any_unfinished |= !MemberStatus{words_->Load(memory_->MemberAt(i))}.finished();
  }
  // They were seen one after the other: all are in need at once if nothing has changed since.
  if (!donors.any && needs != needs_) donors.any = true;
  needs_ = std::move(needs);
  return donors;
}

void SharedEpochEnd::Meet() {
  const MemberStatus status{words_->Load(memory_->MemberAt(self_))};
  words_->Store(memory_->MetAt(self_), status.times());
  words_->Ring(memory_->EventCountAt());
}

std::vector<int32_t> SharedEpochEnd::Unmet() {
  const uint64_t times = words_->Load(memory_->MetAt(self_));
  return MissingMembers(memory_->size(), [&](int32_t i) {
    return words_->Load(memory_->MetAt(i)) >= times || IsGone(i);
  });
}

void SharedEpochEnd::Leave() {
  if (!keeps_snapshot_) parts_.snapshots->Retract();
  Finish();
  parts_.log->Release(self_);
  for (int32_t i = 0; i < memory_->size(); ++i) words_->Store(memory_->LeftAt(i, self_), 1);
}

bool SharedEpochEnd::HaveAllLeft() {
  return MissingMembers(memory_->size(), [this](int32_t i) { return IsGone(i); }).empty();
}

}  // namespace covey
