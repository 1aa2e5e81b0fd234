#include "core/rounds_port.h"

#include <sched.h>

#include <algorithm>

#include "core/base/clock.h"

namespace covey {
namespace {

// A peer that is stopped rings for nobody, and news of a death rings no bell.
constexpr Time kLongestSleep = 20 * kMillisecond;
// Before finish() a rank may evaluate or save, which says nothing about its steps.
constexpr Time kLeastAtEnd = 60 * kSecond;

}  // namespace

RoundsPort::RoundsPort(Bundle bundle, const Group* group, Transport* transport)
    : bundle_(std::move(bundle)),
      group_(group),
      transport_(transport),
      words_(transport->words()),
      memory_(bundle_.shape, bundle_.layout) {}

void RoundsPort::Open(const std::vector<uint64_t>& offsets) {
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < offsets.size(); ++i)
    blocks.push_back(transport_->Base(group_->members[i]) + offsets[i]);
  offset_ = offsets[static_cast<size_t>(bundle_.options.self)];
  memory_.Map(std::move(blocks));
  rounds_ = std::make_unique<Rounds>(bundle_.options, &memory_, words_);
}

std::byte* RoundsPort::open() {
  const std::lock_guard lock(mutex_);
  return rounds_->open();
}

uint64_t RoundsPort::Publish(std::span<const double> hypers) {
  const std::lock_guard lock(mutex_);
  pace_.OnEnd(MonotonicNow());
  rounds_->set_max_wait(MaxWait(0));
  const uint64_t step = rounds_->Publish(hypers);
  pace_.OnBegin(MonotonicNow());
  return step;
}

uint64_t RoundsPort::executed() {
  const std::lock_guard lock(mutex_);
  return rounds_->executed();
}

Status RoundsPort::Wait(uint64_t version, Time deadline) {
  const Status status = Drive([&] { return rounds_->executed() >= version; }, deadline);
  const std::lock_guard lock(mutex_);
  pace_.OnBegin(MonotonicNow());
  return status;
}

Status RoundsPort::Read(uint64_t version, std::span<void* const> to, RoundRecord* record) {
  const std::lock_guard lock(mutex_);
  const std::string what = "version " + std::to_string(version) + " of '" + bundle_.name + "'";
  if (version > rounds_->executed())
    return Status::InvalidArgument(what + " has not been made yet: wait for it first");
  if (version >= 1 && rounds_->Read(version, to, record) == Found::kYes) return Status::Ok();
  return Status::Exhausted(
      what + " is no longer in the log, which keeps " + std::to_string(memory_.log()) +
      " results: this rank has fallen behind for good; a larger log= of the method lets it");
}

Status RoundsPort::Merge(uint64_t version, std::span<void* const> to, Merged* merged) {
  const std::lock_guard lock(mutex_);
  const std::string what = "version " + std::to_string(version) + " of '" + bundle_.name + "'";
  if (rounds_->step() == 0)
    return Status::InvalidArgument("merging with " + what + ": this rank has published no model");
  if (version < 1 || version > rounds_->executed())
    return Status::InvalidArgument(what + " has not been made yet: wait for it first");
  rounds_->Merge(version, to, merged);
  return Status::Ok();
}

Status RoundsPort::Finish(Time deadline) {
  Time max_wait = 0;
  {
    const std::lock_guard lock(mutex_);
    max_wait = MaxWait(kLeastAtEnd);
    rounds_->set_max_wait(max_wait);
    rounds_->Finish();
  }
  const Status status =
      Drive([&] { return rounds_->HasGivenUp() || rounds_->IsFlushed(); }, deadline);
  const std::lock_guard lock(mutex_);
  const std::string what = "finish() of '" + bundle_.name + "' ";
  if (status.code() == StatusCode::kTimeout)
    return Status::Timeout(what + "still waits for " + Missing());
  if (!status.ok()) return status;
  if (rounds_->HasGivenUp())
    return Status::Timeout(
        what + "has waited " + std::to_string(max_wait / kMillisecond) + " ms (max_wait) for " +
            Missing() +
            ": all the others have published counts, what those ranks do from now "
            "on does not reach this one; call it again to wait on",
        FirstMissing());
  rounds_->GoOn();
  return Status::Ok();
}

// With the lock held. `least`: unless the user has said it.
Time RoundsPort::MaxWait(Time least) const {
  const Time told = bundle_.options.max_wait;
  return told > 0 ? told : std::max(least, pace_.MaxWait());
}

// With the lock held.
Rank RoundsPort::FirstMissing() {
  const std::vector<int32_t> missing = rounds_->Unfinished();
  return group_->members[static_cast<size_t>(missing.empty() ? 0 : missing[0])];
}

// With the lock held.
std::string RoundsPort::Missing() {
  std::string text;
  for (int32_t index : rounds_->Unfinished())
    text += (text.empty() ? "rank " : ", ") +
            std::to_string(ToInt(group_->members[static_cast<size_t>(index)]));
  return text.empty() ? "the last version" : text;
}

Status RoundsPort::Drive(const std::function<bool()>& done, Time deadline) {
  Time idle_since = 0;
  int yields = 0;
  for (;;) {
    const uint32_t ticket = words_->Ticket(memory_.BellAt());
    const Time now = MonotonicNow();
    Time until = kNever;
    bool moved = false;
    if (Pass(done, now, &until, &moved)) return Status::Ok();
    if (stop_.load()) return Status::Aborted("this rank is shutting down");
    if (now >= deadline) return Status::Timeout("the version has not been made yet");
    if (moved) {
      idle_since = 0;
      yields = 0;
      continue;
    }
    if (idle_since == 0) idle_since = now;
    if (now - idle_since < bundle_.waiting.spin) continue;
    if (yields++ < bundle_.waiting.yields) {
      sched_yield();
      continue;
    }
    words_->Sleep(memory_.BellAt(), ticket, std::min({until, deadline, now + kLongestSleep}));
  }
}

bool RoundsPort::Pass(const std::function<bool()>& done, Time now, Time* until, bool* moved) {
  const std::lock_guard lock(mutex_);
  if (done()) return true;
  HearOfLosses();
  *until = rounds_->Advance(now, moved);
  return done();
}

void RoundsPort::HearOfLosses() {
  for (size_t i = 0; i < group_->members.size(); ++i)
    if (transport_->IsLost(group_->members[i])) rounds_->OnLoss(static_cast<int32_t>(i));
}

void RoundsPort::Interrupt() {
  stop_.store(true);
  words_->Ring(memory_.BellAt());
}

void RoundsPort::Close() {
  const std::lock_guard lock(mutex_);
  rounds_->Leave();
}

bool RoundsPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  return rounds_->HaveAllLeft();
}

}  // namespace covey
