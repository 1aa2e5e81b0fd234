#include "core/rounds_port.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "core/base/clock.h"

namespace covey {
namespace {

// A peer that is stopped rings for nobody, and news of a death rings no bell.
constexpr Time kLongestSleep = 20 * kMillisecond;
// Before finish() a rank may evaluate or save, which says nothing about its steps.
constexpr Time kLeastAtEnd = 60 * kSecond;
constexpr uint64_t kNotServing = ~uint64_t{0};

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
  return Arrive([&] { return rounds_->Publish(hypers); });
}

uint64_t RoundsPort::Skip() {
  return Arrive([this] { return rounds_->Skip(); });
}

uint64_t RoundsPort::Arrive(const std::function<uint64_t()>& publish) {
  const std::lock_guard lock(mutex_);
  pace_.OnEnd(MonotonicNow());
  finishing_ = false;
  rounds_->set_max_wait(MaxWait(0));
  if (bundle_.options.admission.grace < 0) rounds_->set_grace(pace_.Grace());
  const uint64_t step = publish();
  pace_.OnBegin(MonotonicNow());
  return step;
}

uint64_t RoundsPort::executed() {
  const std::lock_guard lock(mutex_);
  return rounds_->executed();
}

Status RoundsPort::Wait(uint64_t version, Time deadline) {
  Event event = Event::kDone;
  const Status status = WaitServing(version, kNotServing, deadline, &event);
  if (!status.ok() || event == Event::kDone) return status;
  return Status::Timeout("the version has not been made yet");
}

Status RoundsPort::WaitServing(uint64_t version, uint64_t applied, Time deadline, Event* event) {
  const auto look = [&] {
    *event = Event::kDone;
    if (rounds_->executed() >= version) return true;
    *event = Event::kAsked;
    return applied != kNotServing && rounds_->IsAsked(applied, MonotonicNow());
  };
  const Status status = Drive(look, deadline);
  if (status.code() == StatusCode::kTimeout) {
    *event = Event::kTime;
    return Status::Ok();
  }
  const std::lock_guard lock(mutex_);
  pace_.OnBegin(MonotonicNow());
  return status;
}

void RoundsPort::Expect(std::span<void* const> to) {
  const std::lock_guard lock(mutex_);
  rounds_->Expect(to);
}

Status RoundsPort::Read(uint64_t version, std::span<void* const> to, RoundRecord* record) {
  const std::lock_guard lock(mutex_);
  const std::string what = "version " + std::to_string(version) + " of '" + bundle_.name + "'";
  if (version > rounds_->executed())
    return Status::InvalidArgument(what + " has not been made yet: wait for it first");
  RoundRecord known;
  if (record == nullptr) record = &known;
  if (version >= 1 && rounds_->Read(version, to, record) == Found::kYes) {
    Count(*record);
    return Status::Ok();
  }
  return Status::Exhausted(
      what + " is no longer in the log, which keeps " + std::to_string(memory_.log()) +
      " results: this rank goes on from a snapshot, or with a larger log= of the method");
}

void RoundsPort::BeginFinish() {
  const std::lock_guard lock(mutex_);
  if (finishing_) return;
  finishing_ = true;
  rounds_->set_max_wait(MaxWait(kLeastAtEnd));
  rounds_->Finish();
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
  Event event = Event::kDone;
  RETURN_IF_ERROR(FinishServing(kNotServing, deadline, &event));
  if (event == Event::kDone) return Status::Ok();
  const std::lock_guard lock(mutex_);
  return Status::Timeout("finish() of '" + bundle_.name + "' still waits for " +
                         Missing(rounds_->Unfinished()));
}

Status RoundsPort::FinishServing(uint64_t applied, Time deadline, Event* event) {
  BeginFinish();
  const uint64_t half = std::max<uint64_t>(1, memory_.log() / 2);
  const auto look = [&] {
    *event = Event::kDone;
    if (rounds_->HasGivenUp() || rounds_->IsFlushed()) return true;
    *event = Event::kBehind;
    if (applied != kNotServing && rounds_->executed() >= applied + half) return true;
    *event = Event::kAsked;
    return applied != kNotServing && rounds_->IsAsked(applied, MonotonicNow());
  };
  const Status status = Drive(look, deadline);
  if (status.code() == StatusCode::kTimeout) {
    *event = Event::kTime;
    return Status::Ok();
  }
  if (!status.ok() || *event != Event::kDone) return status;
  const std::lock_guard lock(mutex_);
  finishing_ = false;
  if (rounds_->HasGivenUp())
    return Status::Timeout("finish() of '" + bundle_.name + "' has waited " +
                               std::to_string(MaxWait(kLeastAtEnd) / kMillisecond) +
                               " ms (max_wait) for " + Missing(rounds_->Unfinished()) +
                               ": all the others have published counts, what those ranks do from "
                               "now on does not reach this one; call it again to wait on",
                           FirstMissing());
  rounds_->GoOn();
  return Status::Ok();
}

Status RoundsPort::MeetServing(uint64_t applied, Time deadline, Event* event) {
  {
    const std::lock_guard lock(mutex_);
    if (meeting_since_ == 0) meeting_since_ = MonotonicNow();
    rounds_->Meet();
  }
  const auto look = [&] {
    *event = Event::kDone;
    if (rounds_->Unmet().empty()) return true;
    *event = Event::kAsked;
    return rounds_->IsAsked(applied, MonotonicNow());
  };
  const Status status = Drive(look, deadline);
  const std::lock_guard lock(mutex_);
  const bool is_over = status.code() == StatusCode::kTimeout;
  if (is_over) *event = Event::kTime;
  if (is_over && MonotonicNow() - meeting_since_ < MaxWait(kLeastAtEnd)) return Status::Ok();
  if (!is_over && (!status.ok() || *event != Event::kDone)) return status;
  meeting_since_ = 0;
  if (!is_over) return Status::Ok();
  return Status::Timeout("finish() of '" + bundle_.name + "': all that was published counts, but " +
                         Missing(rounds_->Unmet()) +
                         " has not applied it for max_wait; call it again to wait on");
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
std::string RoundsPort::Missing(const std::vector<int32_t>& members) {
  std::string text;
  for (int32_t index : members)
    text += (text.empty() ? "rank " : ", ") +
            std::to_string(ToInt(group_->members[static_cast<size_t>(index)]));
  return text.empty() ? "the last version" : text;
}

// With the lock held.
void RoundsPort::Count(const RoundRecord& record) {
  const auto self = static_cast<size_t>(bundle_.options.self);
  const Contribution& own = record.contributions[self];
  const bool is_overdue = record.missing[self] > 0;
  ++counters_.versions;
  counters_.fresh += own.count > 0 && own.last >= record.header.version ? 1 : 0;
  counters_.late += own.count > 0 && own.last < record.header.version ? 1 : 0;
  counters_.overdue += is_overdue && !was_overdue_ ? 1 : 0;
  was_overdue_ = is_overdue;
}

RoundsPort::Counters RoundsPort::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

Status RoundsPort::Drive(const std::function<bool()>& done, Time deadline) {
  const Time begin = MonotonicNow();
  Status status = DriveOn(done, deadline);
  const std::lock_guard lock(mutex_);
  counters_.waited_ns += static_cast<uint64_t>(MonotonicNow() - begin);
  if (!status.ok()) rounds_->Forget();
  return status;
}

Status RoundsPort::DriveOn(const std::function<bool()>& done, Time deadline) {
  Time idle_since = 0;
  int yields = 0;
  for (;;) {
    const uint32_t ticket = words_->Ticket(memory_.BellAt());
    const Time now = MonotonicNow();
    Time until = kNever;
    bool moved = false;
    if (Pass(done, now, &until, &moved)) return Status::Ok();
    if (stop_.load()) return Status::Aborted("this rank is shutting down");
    if (now >= deadline) return Status::Timeout("the deadline is over");
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

bool RoundsPort::IsAsked(uint64_t applied, uint64_t* unused) {
  const std::lock_guard lock(mutex_);
  *unused = Transport::kNoOffset;
  if (rounds_->snapshots().IsStale(applied)) {
    rounds_->snapshots().Withdraw();
    std::swap(*unused, snapshot_offset_);
  }
  return rounds_->IsAsked(applied, MonotonicNow());
}

void RoundsPort::Give(uint64_t version, uint64_t offset, std::span<const Snapshots::Part> parts,
                      uint64_t* unused) {
  const std::lock_guard lock(mutex_);
  const bool has_room = offset != Transport::kNoOffset;
  std::byte* region = transport_->Base(transport_->rank());
  rounds_->snapshots().Give(version, has_room ? region + offset : nullptr, parts);
  *unused = std::exchange(snapshot_offset_, offset);
}

Status RoundsPort::Seek(uint64_t applied, Time deadline, Offer* offer) {
  Rounds::Givers givers;
  const auto look = [&] {
    *offer = rounds_->snapshots().Find(applied, rounds_->executed());
    givers = rounds_->FindGivers();
    return offer->member >= 0 || !givers.any;
  };
  const Status status = Drive(look, deadline);
  if (!status.ok() && status.code() != StatusCode::kTimeout) return status;
  const std::lock_guard lock(mutex_);
  const std::string what = "this rank has applied version " + std::to_string(applied) + " of '" +
                           bundle_.name + "', the log begins later, and ";
  if (offer->member < 0 && !givers.any)
    return Status::Exhausted(what +
                             "nobody is left who could give it a snapshot: all others have "
                             "left, died, or need one themselves");
  const Time now = MonotonicNow();
  if (offer->member >= 0 || givers.any_unfinished || seeking_since_ == 0)
    seeking_since_ = offer->member >= 0 ? 0 : now;
  if (seeking_since_ == 0 || now - seeking_since_ < MaxWait(kLeastAtEnd)) return Status::Ok();
  seeking_since_ = 0;
  return Status::Timeout(what +
                         "the others, who are in finish(), have not given it a snapshot for "
                         "max_wait");
}

bool RoundsPort::Take(const Offer& offer, std::byte* to) {
  const std::lock_guard lock(mutex_);
  if (!rounds_->snapshots().Take(offer, to)) return false;
  rounds_->OnSnapshot(offer.version);
  ++counters_.snapshots;
  return true;
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
