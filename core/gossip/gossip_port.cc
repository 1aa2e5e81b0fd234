#include "core/gossip/gossip_port.h"

#include <algorithm>
#include <utility>

namespace covey {

GossipPort::GossipPort(Bundle bundle, const Group* group, Transport* transport)
    : PairsPort(std::move(bundle), group, group->size()),
      transport_(transport),
      words_(transport->words()) {}

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

bool GossipPort::TrainsDuringFinish(std::span<void* const> model) {
  if (barrier_.phase() == Phase::kFinishes && gossip_->LeaveBarrier()) {
    barrier_.Enter(Phase::kTrains, clock_->Now());
    return false;
  }
  if (barrier_.phase() == Phase::kFinishes) {
    gossip_->TakeWithProgress(model, &Gossip::Mean);
    Meet();
  }
  has_learnt_ = true;
  if (!gossip_->Unmet().empty()) return true;
  GoOn(model);
  return true;  // The progress of this step is in the epoch's first model.
}

void GossipPort::Meet() {
  fewest_ = gossip_->Meet();
  barrier_.Enter(Phase::kApplies, clock_->Now());
  has_learnt_ = false;
}

PairsPort::Seen GossipPort::Peek(int32_t member, std::span<void* const> to) {
  const std::lock_guard lock(mutex_);
  const bool is_whole = to.empty() || gossip_->Peek(member, to);
  return {.state = is_whole ? WindowState::kWhole : WindowState::kChanging};
}

Status GossipPort::Gather(std::span<void* const> model, Time deadline, Result result) {
  result_ = result;
  EnterFinish();
  for (bool is_over = false; !is_over;) {
    if (barrier_.phase() == Phase::kTrains) {
      const std::lock_guard lock(mutex_);
      steps_->PushDelta(model);
      gossip_->Finish(Number());
      barrier_.Enter(Phase::kFinishes, clock_->Now());
    }
    if (barrier_.phase() == Phase::kFinishes) {
      RETURN_IF_ERROR(Await(&Gossip::Unfinished, deadline));
      const std::lock_guard lock(mutex_);
      gossip_->Mean(model);
      Meet();
    }
    RETURN_IF_ERROR(Await(&Gossip::Unmet, deadline));
    const std::lock_guard lock(mutex_);
    GoOn(model);
    // gossip-P18: else this was the end of a Finish before.
    is_over = !has_learnt_ && fewest_ >= Number();
  }
  LeaveFinish();
  return Status::Ok();
}

Status GossipPort::Await(std::vector<int32_t> (Gossip::*missing)(), Time deadline) {
  return WaitFor([&](Time now) { return LookFor(missing, now); }, deadline);
}

Status GossipPort::WaitFor(const Look& look, Time deadline) {
  return WaitForEvent(words_, memory_.EventCountAt(), {.longest_sleep = bundle_.longest_sleep},
                      clock_, stop_, deadline, look);
}

Looked GossipPort::LookFor(std::vector<int32_t> (Gossip::*missing)(), Time now) {
  Looked looked;
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  const std::vector<int32_t> members = ((*gossip_).*missing)();
  if (members.empty()) {
    looked.end = Status::Ok();
  } else if (const Time left = barrier_.Left(bundle_.max_wait, now); left > 0) {
    looked.until = now + std::min(left, bundle_.longest_sleep);
  } else {
    looked.end =
        barrier_.TimedOut(members, bundle_.max_wait, "call it again to wait on, or train on");
    barrier_.Restart(now);
  }
  return looked;
}

void GossipPort::HearOfLosses() {
  for (size_t i = 0; i < group_->members.size(); ++i) {
    const auto member = static_cast<int32_t>(i);
    // gossip-P10: a member that has left is waited for no more than a dead one.
    if (transport_->IsLost(group_->members[i]) || gossip_->HasLeft(member)) gossip_->OnLoss(member);
  }
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

}  // namespace covey
