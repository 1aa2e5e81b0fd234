#include "core/pairs_port.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

// News of a death rings no bell.
constexpr Time kLongestSleep = 20 * kMillisecond;

}  // namespace

PairsPort::PairsPort(Bundle bundle, const Group* group, Transport* transport)
    : bundle_(std::move(bundle)),
      group_(group),
      transport_(transport),
      words_(transport->words()),
      memory_(group->size(), bundle_.layout),
      rng_(bundle_.rule.topology.seed + static_cast<uint64_t>(bundle_.self)) {}

void PairsPort::Open(const std::vector<uint64_t>& offsets) {
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < offsets.size(); ++i)
    blocks.push_back(transport_->Base(group_->members[i]) + offsets[i]);
  offset_ = offsets[static_cast<size_t>(bundle_.self)];
  memory_.Map(std::move(blocks));
  pairs_ = std::make_unique<Pairs>(bundle_.self, &memory_, words_, bundle_.kernels);
}

void PairsPort::Begin(std::span<const void* const> model) {
  const std::lock_guard lock(mutex_);
  pairs_->Begin(model);
}

PairsPort::Met PairsPort::Step(std::span<void* const> model) {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  if (phase_ == Phase::kFinishes) pairs_->TrainOn();
  if (phase_ == Phase::kMeets)
    pairs_->GoOn({const_cast<const void* const*>(model.data()), model.size()});
  phase_ = Phase::kTrains;
  if (!IsDue()) return {};
  const uint64_t merged = pairs_->counters().merged;
  pairs_->Update(model);
  Met met{.partner = -1, .merged = pairs_->counters().merged > merged};
  if (bundle_.rule.all_begin || bundle_.self % 2 == 0) met.partner = AverageWithNext(model);
  return met;
}

// A local step is over: whether it was the last.
bool PairsPort::IsDue() {
  const PairRule& rule = bundle_.rule;
  if (left_ == 0) {
    left_ = rule.local_steps;
    if (rule.is_random)
      for (left_ = 1; rng_.Below(static_cast<uint64_t>(rule.local_steps)) != 0;) ++left_;
  }
  return --left_ == 0;
}

// Passes over who is dead or has not begun.
int32_t PairsPort::AverageWithNext(std::span<void* const> model) {
  for (int32_t i = 0; i < memory_.size(); ++i) {
    const int32_t partner = PartnerOf(bundle_.rule.topology, round_++, bundle_.self);
    if (partner < 0) return -1;
    const Pairs::Outcome outcome = pairs_->Exchange(partner, model);
    if (outcome == Pairs::Outcome::kDone) return partner;
    if (outcome != Pairs::Outcome::kAbsent) return -1;
  }
  return -1;
}

bool PairsPort::Look(int32_t member, std::span<void* const> to) {
  const std::lock_guard lock(mutex_);
  return pairs_->Look(member, to);
}

Status PairsPort::Finish(std::span<void* const> model, Time deadline) {
  if (phase_ == Phase::kTrains) {
    const std::lock_guard lock(mutex_);
    pairs_->Finish();
    since_ = clock_.Now();
    phase_ = Phase::kFinishes;
  }
  if (phase_ == Phase::kFinishes) {
    RETURN_IF_ERROR(Await(&Pairs::Unfinished, deadline));
    const std::lock_guard lock(mutex_);
    pairs_->Mean(model);
    pairs_->Meet();
    since_ = clock_.Now();
    phase_ = Phase::kMeets;
  }
  RETURN_IF_ERROR(Await(&Pairs::Unmet, deadline));
  const std::lock_guard lock(mutex_);
  pairs_->GoOn({const_cast<const void* const*>(model.data()), model.size()});
  phase_ = Phase::kTrains;
  return Status::Ok();
}

Status PairsPort::Await(std::vector<int32_t> (Pairs::*missing)(), Time deadline) {
  for (;;) {
    const uint32_t ticket = words_->Ticket(memory_.BellAt());
    const Time now = clock_.Now();
    {
      const std::lock_guard lock(mutex_);
      HearOfLosses();
      const std::vector<int32_t> members = ((*pairs_).*missing)();
      if (members.empty()) return Status::Ok();
      if (stop_.load()) return Status::Aborted("this rank is shutting down");
      if (now - since_ >= bundle_.max_wait) {
        since_ = now;  // called again it waits anew
        return MissingAfter(members);
      }
    }
    if (now >= deadline) return Status::Timeout("the deadline is over");
    words_->Sleep(memory_.BellAt(), ticket, std::min(deadline, now + kLongestSleep));
  }
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

}  // namespace covey
