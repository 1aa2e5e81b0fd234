// The end of an epoch: words that each member writes for itself, and one that says it for all.
#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/group_barrier.h"
#include "core/gossip/gossip.h"

namespace covey {

MemberWord Gossip::StateOf(int32_t i) { return MemberWord::Of(words_->Load(memory_->MemberAt(i))); }

void Gossip::Say(MemberState state) {
  words_->Store(memory_->MemberAt(self_), MemberWord{state, epoch_, number_}.Word());
}

// A member that had finished trains on, or has died when it was about to. False: it does not, for
// the epoch is over.
bool Gossip::CountLeaving() {
  for (;;) {
    const EpochBarrier end = EpochBarrier::Of(words_->Load(memory_->BarrierAt()));
    if (end.HasEnded(epoch_)) return false;
    // gossip-P5: the count makes an end that did not see this rank leave fail.
    const EpochBarrier next{.is_over = false, .left = end.left + 1, .epoch = epoch_};
    if (words_->CompareExchange(memory_->BarrierAt(), end.Word(), next.Word())) return true;
  }
}

// Members that died in the middle of their epoch.
void Gossip::MarkLostDead() {
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const MemberWord state = StateOf(i);
    if (!lost_[static_cast<size_t>(i)] || state.state == MemberState::kDead) continue;
    const bool has_finished = state.epoch == epoch_ && state.state != MemberState::kRuns;
    // gossip-P5: a rank that has finished and died is in the mean, as all other ranks see it.
    const bool stays = has_finished && !(state.state == MemberState::kLeaves && CountLeaving());
    if (!stays)
      words_->CompareExchange(memory_->MemberAt(i), state.Word(),
                              MemberWord{MemberState::kDead, state.epoch, state.number}.Word());
  }
}

void Gossip::Finish(uint64_t number) {
  number_ = number;
  Say(MemberState::kFinished);
  words_->Ring(memory_->EventCountAt());
}

// It says so before it counts itself: the member that ends the epoch has either seen it, or fails
// because of the count.
bool Gossip::LeaveBarrier() {
  Say(MemberState::kLeaves);
  // gossip-P5: one word says for all whether the epoch is over: then this rank takes its mean.
  const bool may = CountLeaving();
  Say(may ? MemberState::kRuns : MemberState::kFinished);
  return may;
}

std::vector<int32_t> Gossip::Unfinished() {
  for (;;) {
    MarkLostDead();
    const EpochBarrier end = EpochBarrier::Of(words_->Load(memory_->BarrierAt()));
    // gossip-P5: the end of the epoch is one word: it has ended for all.
    if (end.HasEnded(epoch_)) return {};
    std::vector<int32_t> unfinished = MissingMembers(memory_->size(), [&](int32_t i) {
      const MemberWord state = StateOf(i);
      const bool has_finished = state.epoch == epoch_ && (state.state == MemberState::kFinished ||
                                                          state.state == MemberState::kMet);
      return has_finished || state.state == MemberState::kDead;
    });
    if (!unfinished.empty()) return unfinished;
    const EpochBarrier over{.is_over = true, .left = end.left, .epoch = epoch_};
    words_->CompareExchange(memory_->BarrierAt(), end.Word(), over.Word());
  }
}

// All at one moment: nothing has changed between two looks.
std::vector<ModelWord> Gossip::AllSettled() {
  std::vector<ModelWord> models;
  for (bool again = true; again;) {
    again = false;
    models.resize(static_cast<size_t>(memory_->size()));
    for (int32_t i = 0; i < memory_->size(); ++i) {
      const ModelWord model = exchange_.Settled(i);
      // gossip-P5: the mean is of all models as they are at one moment.
      again |= model.Word() != models[static_cast<size_t>(i)].Word();
      models[static_cast<size_t>(i)] = model;
    }
  }
  return models;
}

void Gossip::Mean(std::span<void* const> model) {
  MarkLostDead();
  std::vector<const std::byte*> all;
  const std::vector<ModelWord> models = AllSettled();
  fewest_ = number_;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const ModelWord& one = models[static_cast<size_t>(i)];
    // A rank that others have given up has its own model at least.
    const MemberWord state = StateOf(i);
    const bool lives = state.state != MemberState::kDead;
    if ((i == self_ || lives) && one.number > 0) all.push_back(memory_->Buffer(one));
    // gossip-P18: a member of a later epoch has given this rank up.
    if (lives && state.epoch == epoch_) fewest_ = std::min(fewest_, state.number);
  }
  // gossip-P19: where one member keeps its own model, and others took the mean, work would be lost.
  if (FinishNumber::Settles(fewest_)) return OwnModel(model);
  MeanOf(all, model);
}

void Gossip::OwnModel(std::span<void* const> model) {
  MarkLostDead();
  // gossip-P5a: the settled model, with what others have made of it, not the base.
  Take(memory_->Buffer(AllSettled()[static_cast<size_t>(self_)]), model);
}

void Gossip::TakeWithProgress(std::span<void* const> model, Taking take) {
  std::vector<std::byte> taken(memory_->layout().length_bytes());
  std::vector<void*> spans;
  for (const size_t offset : memory_->layout().offsets_bytes())
    spans.push_back(taken.data() + offset);
  (this->*take)(spans);
  AddProgress(model, taken.data());
}

void Gossip::AddProgress(std::span<void* const> model, std::byte* taken) {
  // gossip-P5a: this rank's progress after it had finished is added to the mean.
  Merge(model, taken, taken);
  Take(taken, model);
}

uint64_t Gossip::Meet() {
  // gossip-P5a: the ranks that wait in Unmet sleep on this event count.
  Say(MemberState::kMet);
  words_->Ring(memory_->EventCountAt());
  return fewest_;
}

std::vector<int32_t> Gossip::Unmet() {
  return MissingMembers(memory_->size(), [&](int32_t i) {
    const MemberWord state = StateOf(i);
    // gossip-P5a: all models stay as they are until every rank has read the mean.
    const bool has_met = state.epoch > epoch_ || state.state == MemberState::kMet ||
                         state.state == MemberState::kDead;
    return has_met || lost_[static_cast<size_t>(i)];
  });
}

// The model first: a member that sees this rank in the next epoch averages with that model.
void Gossip::GoOn(std::span<const void* const> model) {
  const uint32_t buffer = FreeBuffers().at(0);
  Put(model, buffer);
  CHECK(Publish(exchange_.Settled(self_), buffer), "nobody averages between two epochs");
  base_ = buffer;
  ++epoch_;
  Say(MemberState::kRuns);
}

void Gossip::Leave() {
  for (int32_t i = 0; i < memory_->size(); ++i) words_->Store(memory_->LeftAt(i, self_), 1);
}

bool Gossip::HasLeft(int32_t member) { return words_->Load(memory_->LeftAt(self_, member)) != 0; }

bool Gossip::HaveAllLeft() {
  const auto is_gone = [this](int32_t i) { return lost_[static_cast<size_t>(i)] || HasLeft(i); };
  return MissingMembers(memory_->size(), is_gone).empty();
}

}  // namespace covey
