#include "core/gossip/gossip_port.h"

#include <algorithm>
#include <utility>

namespace covey {

GossipPort::GossipPort(Bundle bundle, const Group* group, Transport* transport)
    : bundle_(std::move(bundle)),
      group_(group),
      transport_(transport),
      words_(transport->words()),
      memory_(group->size(), bundle_.layout) {}

void GossipPort::Open(const std::vector<uint64_t>& offsets) {
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < offsets.size(); ++i)
    blocks.push_back(transport_->Base(group_->members[i]) + offsets[i]);
  offset_ = offsets[static_cast<size_t>(bundle_.self)];
  memory_.Map(std::move(blocks));
  gossip_ =
      std::make_unique<Gossip>(bundle_.self, &memory_, words_, bundle_.kernels, bundle_.codec);
  steps_ = std::make_unique<GossipSteps>(bundle_.self, bundle_.rule, gossip_.get());
}

void GossipPort::Begin(std::span<const void* const> model) {
  const std::lock_guard lock(mutex_);
  gossip_->Begin(model);
}

GossipPort::Met GossipPort::Step(std::span<void* const> model) {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  if (phase_ != Phase::kTrains && TrainsDuringFinish(model)) return {};
  return steps_->Step(model);
}

// After a Finish that has not come to its end: takes it up again, without waiting. False: `model`
// is trained on with the others.
bool GossipPort::TrainsDuringFinish(std::span<void* const> model) {
  if (phase_ == Phase::kFinishes && gossip_->LeaveBarrier()) {
    phase_ = Phase::kTrains;
    return false;
  }
  if (phase_ == Phase::kFinishes) {
    gossip_->TakeWithProgress(model, take_);
    Meet();
  }
  has_learnt_ = true;
  if (!gossip_->Unmet().empty()) return true;
  GoOn(model);
  return true;  // What this step has brought is in the model that the epoch begins with.
}

void GossipPort::Meet() {
  gossip_->Meet();
  since_ = clock_.Now();
  phase_ = Phase::kMeets;
  has_learnt_ = false;
}

void GossipPort::GoOn(std::span<void* const> model) {
  gossip_->GoOn({const_cast<const void* const*>(model.data()), model.size()});
  phase_ = Phase::kTrains;
}

bool GossipPort::Peek(int32_t member, std::span<void* const> to) {
  const std::lock_guard lock(mutex_);
  return gossip_->Peek(member, to);
}

Status GossipPort::Gather(std::span<void* const> model, Time deadline, Taking take) {
  for (bool is_over = false; !is_over;) {
    if (phase_ == Phase::kTrains) {
      const std::lock_guard lock(mutex_);
      steps_->PushDelta(model);
      gossip_->Finish();
      since_ = clock_.Now();
      phase_ = Phase::kFinishes;
      take_ = take;
    }
    if (phase_ == Phase::kFinishes) {
      RETURN_IF_ERROR(Await(&Gossip::Unfinished, deadline));
      const std::lock_guard lock(mutex_);
      ((*gossip_).*take)(model);
      Meet();
    }
    RETURN_IF_ERROR(Await(&Gossip::Unmet, deadline));
    const std::lock_guard lock(mutex_);
    GoOn(model);
    is_over = !has_learnt_;  // Else this was the end of the Finish before.
  }
  return Status::Ok();
}

Status GossipPort::Await(std::vector<int32_t> (Gossip::*missing)(), Time deadline) {
  return WaitForEvent(words_, memory_.EventCountAt(), {.longest_sleep = bundle_.longest_sleep},
                      &clock_, stop_, deadline, [&](Time now) { return LookFor(missing, now); });
}

Looked GossipPort::LookFor(std::vector<int32_t> (Gossip::*missing)(), Time now) {
  Looked looked;
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  const std::vector<int32_t> members = ((*gossip_).*missing)();
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

Status GossipPort::MissingAfter(const std::vector<int32_t>& members) const {
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

void GossipPort::HearOfLosses() {
  for (size_t i = 0; i < group_->members.size(); ++i)
    if (transport_->IsLost(group_->members[i])) gossip_->OnLoss(static_cast<int32_t>(i));
}

void GossipPort::Interrupt() {
  stop_.store(true);
  words_->Ring(memory_.EventCountAt());
}

void GossipPort::Close() {
  const std::lock_guard lock(mutex_);
  gossip_->Leave();
}

bool GossipPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  return gossip_->HaveAllLeft();
}

Gossip::Counters GossipPort::counters() {
  const std::lock_guard lock(mutex_);
  return gossip_->counters();
}

GossipPort::Totals GossipPort::totals() {
  const std::lock_guard lock(mutex_);
  return gossip_ == nullptr ? QuantizedCounters{} : gossip_->quantized();
}

}  // namespace covey
