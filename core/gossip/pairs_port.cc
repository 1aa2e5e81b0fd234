#include "core/gossip/pairs_port.h"

#include <algorithm>
#include <utility>

namespace covey {

PairsPort::PairsPort(Bundle bundle, const Group* group, Transport* transport)
    : bundle_(std::move(bundle)),
      group_(group),
      transport_(transport),
      words_(transport->words()),
      memory_(group->size(), bundle_.layout) {}

void PairsPort::Open(const std::vector<uint64_t>& offsets) {
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < offsets.size(); ++i)
    blocks.push_back(transport_->Base(group_->members[i]) + offsets[i]);
  offset_ = offsets[static_cast<size_t>(bundle_.self)];
  memory_.Map(std::move(blocks));
  pairs_ = std::make_unique<Pairs>(bundle_.self, &memory_, words_, bundle_.kernels, bundle_.codec);
  steps_ = std::make_unique<PairSteps>(bundle_.self, bundle_.rule, pairs_.get());
}

void PairsPort::Begin(std::span<const void* const> model) {
  const std::lock_guard lock(mutex_);
  pairs_->Begin(model);
}

PairsPort::Met PairsPort::Step(std::span<void* const> model) {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  if (phase_ != Phase::kTrains && TrainsAlone(model)) return {};
  return steps_->Step(model);
}

// After a Finish that has not come to its end: takes it up again, without waiting. False: `model`
// is trained on with the others.
bool PairsPort::TrainsAlone(std::span<void* const> model) {
  if (phase_ == Phase::kFinishes && pairs_->TrainOn()) {
    phase_ = Phase::kTrains;
    return false;
  }
  if (phase_ == Phase::kFinishes) {
    pairs_->TakeWithProgress(model, take_);
    Meet();
  }
  has_learnt_ = true;
  if (!pairs_->Unmet().empty()) return true;
  GoOn(model);
  return true;  // What this step has brought is in the model that the epoch begins with.
}

void PairsPort::Meet() {
  pairs_->Meet();
  since_ = clock_.Now();
  phase_ = Phase::kMeets;
  has_learnt_ = false;
}

void PairsPort::GoOn(std::span<void* const> model) {
  pairs_->GoOn({const_cast<const void* const*>(model.data()), model.size()});
  phase_ = Phase::kTrains;
}

bool PairsPort::Look(int32_t member, std::span<void* const> to) {
  const std::lock_guard lock(mutex_);
  return pairs_->Look(member, to);
}

Status PairsPort::Gather(std::span<void* const> model, Time deadline, Taking take) {
  for (bool is_over = false; !is_over;) {
    if (phase_ == Phase::kTrains) {
      const std::lock_guard lock(mutex_);
      steps_->HandIn(model);
      pairs_->Finish();
      since_ = clock_.Now();
      phase_ = Phase::kFinishes;
      take_ = take;
    }
    if (phase_ == Phase::kFinishes) {
      RETURN_IF_ERROR(Await(&Pairs::Unfinished, deadline));
      const std::lock_guard lock(mutex_);
      ((*pairs_).*take)(model);
      Meet();
    }
    RETURN_IF_ERROR(Await(&Pairs::Unmet, deadline));
    const std::lock_guard lock(mutex_);
    GoOn(model);
    is_over = !has_learnt_;  // Else this was the end of the Finish before.
  }
  return Status::Ok();
}

Status PairsPort::Await(std::vector<int32_t> (Pairs::*missing)(), Time deadline) {
  return WaitAtBell(words_, memory_.BellAt(), {.longest_sleep = bundle_.longest_sleep}, &clock_,
                    stop_, deadline, [&](Time now) { return LookFor(missing, now); });
}

Looked PairsPort::LookFor(std::vector<int32_t> (Pairs::*missing)(), Time now) {
  Looked looked;
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  const std::vector<int32_t> members = ((*pairs_).*missing)();
  if (members.empty()) {
    looked.end = Status::Ok();
  } else if (now - since_ >= bundle_.max_wait) {
    since_ = now;  // called again it waits anew
    looked.end = MissingAfter(members);
  } else {
    looked.until = now + std::min(bundle_.max_wait - (now - since_), bundle_.longest_sleep);
  }
  return looked;
}

Status PairsPort::MissingAfter(const std::vector<int32_t>& members) const {
  std::string text;
  for (const int32_t index : members)
    text += (text.empty() ? "rank " : ", ") +
            std::to_string(ToInt(group_->members[static_cast<size_t>(index)]));
  return Status::Timeout("finish() of '" + bundle_.name + "' has waited " +
                             std::to_string(bundle_.max_wait / kMillisecond) +
                             " ms (max_wait) for " + text +
                             ": call it again to wait on, or train on",
                         group_->members[static_cast<size_t>(members[0])]);
}

void PairsPort::HearOfLosses() {
  for (size_t i = 0; i < group_->members.size(); ++i)
    if (transport_->IsLost(group_->members[i])) pairs_->OnLoss(static_cast<int32_t>(i));
}

void PairsPort::Interrupt() {
  stop_.store(true);
  words_->Ring(memory_.BellAt());
}

void PairsPort::Close() {
  const std::lock_guard lock(mutex_);
  pairs_->Leave();
}

bool PairsPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  return pairs_->HaveAllLeft();
}

Pairs::Counters PairsPort::counters() {
  const std::lock_guard lock(mutex_);
  return pairs_->counters();
}

PairsPort::Totals PairsPort::totals() {
  const std::lock_guard lock(mutex_);
  return pairs_ == nullptr ? CodedCounters{} : pairs_->coded();
}

}  // namespace covey
