#include "core/partial/rounds_port.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

// Where max_wait is auto. Before finish() a rank may evaluate or save, which says nothing about its
// steps; and what a rank has done that comes too late for it is dropped.
constexpr Time kLeastAtEnd = 10 * kSecond;

}  // namespace

RoundsPort::Counters& RoundsPort::Counters::operator+=(const Counters& more) {
  versions += more.versions;
  fresh += more.fresh;
  late += more.late;
  overdue += more.overdue;
  dropped += more.dropped;
  snapshots += more.snapshots;
  waited_ns += more.waited_ns;
  return *this;
}

RoundsPort::RoundsPort(Bundle bundle, const Group* group)
    : bundle_(std::move(bundle)),
      group_(group),
      memory_(bundle_.shape, bundle_.layout),
      barrier_(bundle_.name, group) {}

std::byte* RoundsPort::open() {
  const std::lock_guard lock(mutex_);
  return versions().open();
}

uint64_t RoundsPort::Publish(std::span<const double> hypers) {
  return Arrive([&] { return versions().Publish(hypers); });
}

uint64_t RoundsPort::Skip() {
  return Arrive([this] { return versions().Skip(); });
}

uint64_t RoundsPort::Arrive(const std::function<uint64_t()>& publish) {
  uint64_t step = 0;
  {
    const std::lock_guard lock(mutex_);
    step_time_.OnEnd(clock_->Now());
    barrier_.Enter(GroupBarrier::Phase::kTrains, clock_->Now());
    versions().set_max_wait(MaxWait(0));
    const Time grace = bundle_.options.admission.grace;
    if (grace < 0) versions().set_grace(step_time_.Grace(-grace));
    versions().set_step(step_time_.Step());
    step = publish();
    has_gone_on_ = false;
    counters_.dropped = versions().epoch_end().dropped();
    step_time_.OnBegin(clock_->Now());
  }
  Stir();
  return step;
}

bool RoundsPort::WaitsForAll(uint64_t version) const {
  const AdmissionRule& rule = bundle_.options.admission;
  return (has_models() && IsOfAll(version)) || version <= rule.warmup ||
         (rule.ending > 0 && version >= rule.ending);
}

Time RoundsPort::step_time() {
  const std::lock_guard lock(mutex_);
  return step_time_.Step();
}

void RoundsPort::Assume(Time step) {
  const std::lock_guard lock(mutex_);
  step_time_.Assume(step);
}

void RoundsPort::EndWith(uint64_t version) {
  const std::lock_guard lock(mutex_);
  last_ = version;
  versions().EndWith(version);
}

Status RoundsPort::Depart(const std::byte** content) {
  const Status retracted = Retract(content);
  if (!retracted.ok() && retracted.code() != StatusCode::kUnsupported) return retracted;
  {
    const std::lock_guard lock(mutex_);
    Forget();
    versions().epoch_end().Finish();
  }
  Stir();
  return Status::Ok();
}

uint64_t RoundsPort::executed() {
  const std::lock_guard lock(mutex_);
  return versions().executed();
}

uint64_t RoundsPort::published() {
  const std::lock_guard lock(mutex_);
  return versions().step();
}

Time RoundsPort::Ended(uint64_t* executed) {
  const std::lock_guard lock(mutex_);
  *executed = versions().executed();
  return versions().ended();
}

Status RoundsPort::Wait(uint64_t version, Time deadline) {
  Event event = Event::kDone;
  const Status status = WaitServing(version, kNotServing, deadline, &event);
  if (!status.ok() || event == Event::kDone) return status;
  if (event != Event::kLeft) return Status::Timeout("the version has not been made yet");
  const Rank other{group_->members[bundle_.options.self == 0 ? 1 : 0]};
  return Status::Timeout("'" + bundle_.name + "': others have ended finish() without this rank: " +
                             "no version is made until they train on, and its finish() ends " +
                             "with their last one",
                         other);
}

Status RoundsPort::WaitServing(uint64_t version, uint64_t applied, Time deadline, Event* event) {
  Versions::Lack lack;
  const auto look = [&] {
    *event = Event::kDone;
    if (versions().executed() >= version) return true;
    lack = versions().Lacking();
    if (lack.last > 0) return true;
    *event = Event::kLeft;
    if (versions().epoch_end().IsLeftBehind()) return true;
    *event = Event::kAsked;
    return applied != kNotServing && versions().IsAsked(applied, clock_->Now());
  };
  const Status status = Drive(look, deadline);
  if (status.code() == StatusCode::kTimeout) {
    *event = Event::kTime;
    return Status::Ok();
  }
  const std::lock_guard lock(mutex_);
  step_time_.OnBegin(clock_->Now());
  return lack.last > 0 ? CannotGoOn(lack) : status;
}

Status RoundsPort::Read(uint64_t version, std::span<void* const> to, RoundRecord* record) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(NotMade(version));
  RoundRecord known;
  if (record == nullptr) record = &known;
  if (version >= 1 && versions().Read(version, to, record) == Found::kYes) {
    Count(*record);
    return Status::Ok();
  }
  return Gone(version);
}

// With the lock held.
Status RoundsPort::NotMade(uint64_t version) {
  if (version <= versions().executed()) return Status::Ok();
  return Status::InvalidArgument("version " + std::to_string(version) + " of '" + bundle_.name +
                                 "' has not been made yet: wait for it first");
}

Status RoundsPort::Gone(uint64_t version) const {
  return Status::Exhausted(
      "version " + std::to_string(version) + " of '" + bundle_.name +
      "' is no longer in the log, which keeps " + std::to_string(memory_.log()) +
      " results: this rank goes on from a snapshot, or with a larger log= of the method");
}

void RoundsPort::BeginFinish() {
  const std::lock_guard lock(mutex_);
  if (!barrier_.Enter(GroupBarrier::Phase::kFinishes, clock_->Now())) return;
  versions().set_max_wait(MaxWait(kLeastAtEnd));
  // partial-W8e: it finishes once more, though it has published nothing since.
  if (std::exchange(has_gone_on_, false)) versions().GoOn();
  versions().epoch_end().Finish();
}

Status RoundsPort::Finish(Time deadline) {
  Event event = Event::kDone;
  RETURN_IF_ERROR(FinishServing(kNotServing, deadline, &event));
  if (event == Event::kDone) return Status::Ok();
  const std::lock_guard lock(mutex_);
  return Status::Timeout("finish() of '" + bundle_.name + "' still waits for " +
                         barrier_.Names(versions().epoch_end().Unfinished(), "the last version"));
}

// In finish(): before a trainer falls out of the log, and when another member needs its later
// state.
bool RoundsPort::IsToApply(uint64_t applied) {
  const uint64_t executed = versions().executed();
  const uint64_t half = std::max<uint64_t>(1, memory_.log() / 2);
  return executed >= applied + half || (executed > applied && versions().IsAnyInNeed());
}

Status RoundsPort::FinishServing(uint64_t applied, Time deadline, Event* event) {
  BeginFinish();
  // As it was when waiting ended: over a network the next message may change it.
  bool has_given_up = false;
  Versions::Lack lack;
  const auto look = [&] {
    // train-T18: others have gone on from there, and come to no finish() here.
    *event = Event::kBehind;
    if (applied < last_ && versions().executed() >= last_) return true;
    *event = Event::kDone;
    lack = versions().Lacking();
    if (lack.last > 0 || versions().epoch_end().IsFlushed()) return true;
    has_given_up = versions().epoch_end().HasGivenUp();
    if (has_given_up) return true;
    *event = Event::kBehind;
    if (applied != kNotServing && IsToApply(applied)) return true;
    *event = Event::kAsked;
    return applied != kNotServing && versions().IsAsked(applied, clock_->Now());
  };
  const Status status = Drive(look, deadline);
  if (status.code() == StatusCode::kTimeout) {
    *event = Event::kTime;
    return Status::Ok();
  }
  if (!status.ok() || *event != Event::kDone) return status;
  const std::lock_guard lock(mutex_);
  counters_.dropped = versions().epoch_end().dropped();
  Status end = Status::Ok();
  if (lack.last > 0)
    end = CannotGoOn(lack);
  else if (has_given_up)
    end = barrier_.TimedOut(versions().epoch_end().Unfinished(), MaxWait(kLeastAtEnd),
                            "all the others have published counts, what the missing do from now "
                            "on does not reach this rank");
  else
    versions().GoOn();
  barrier_.Enter(GroupBarrier::Phase::kTrains, clock_->Now());
  return end;
}

Status RoundsPort::GoOnWithout() {
  const Status status = Drive([this] { return versions().epoch_end().GoOnWithout(); }, kNever);
  has_gone_on_ = status.ok();
  return status;
}

void RoundsPort::KeepSnapshot() {
  const std::lock_guard lock(mutex_);
  versions().epoch_end().KeepSnapshot();
}

bool RoundsPort::LacksSnapshot(uint64_t version) {
  const std::lock_guard lock(mutex_);
  return versions().epoch_end().LacksSnapshot(version);
}

Status RoundsPort::MeetServing(uint64_t applied, Time deadline, Event* event) {
  {
    const std::lock_guard lock(mutex_);
    barrier_.Enter(GroupBarrier::Phase::kApplies, clock_->Now());
    versions().epoch_end().Meet();
  }
  const auto look = [&] {
    *event = Event::kDone;
    if (versions().epoch_end().Unmet().empty()) return true;
    *event = Event::kAsked;
    return versions().IsAsked(applied, clock_->Now());
  };
  const Status status = Drive(look, deadline);
  const std::lock_guard lock(mutex_);
  const bool is_over = status.code() == StatusCode::kTimeout;
  if (is_over) *event = Event::kTime;
  if (is_over && barrier_.Left(MaxWait(kLeastAtEnd), clock_->Now()) > 0) return Status::Ok();
  if (!is_over && (!status.ok() || *event != Event::kDone)) return status;
  const Status end = is_over
                         ? barrier_.TimedOut(versions().epoch_end().Unmet(), MaxWait(kLeastAtEnd),
                                             "all that was published counts")
                         : Status::Ok();
  barrier_.Enter(GroupBarrier::Phase::kTrains, clock_->Now());
  return end;
}

// With the lock held. `least`: unless the user has said it.
Time RoundsPort::MaxWait(Time least) const {
  const Time told = bundle_.options.max_wait;
  return told > 0 ? told : std::max(least, step_time_.MaxWait());
}

Status RoundsPort::CannotGoOn(const Versions::Lack& lack) const {
  const std::string last = std::to_string(lack.last);
  return Status::Aborted(
      (lack.first == lack.last ? "version " : "versions " + std::to_string(lack.first) + " to ") +
          last + " of '" + bundle_.name + "' cannot be had any more: " + barrier_.Names(lack.gone) +
          ", of whom some had them, have left the job or died, and none is made in their place; " +
          "this rank has those before, and goes on from what others have saved",
      group_->members[static_cast<size_t>(lack.gone[0])]);
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

RoundsPort::Counters RoundsPort::totals() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

Status RoundsPort::Drive(const std::function<bool()>& done, Time deadline) {
  const Time begin = clock_->Now();
  const Status status = DriveOn(done, deadline);
  const std::lock_guard lock(mutex_);
  counters_.waited_ns += static_cast<uint64_t>(clock_->Now() - begin);
  if (!status.ok()) Forget();
  return status;
}

Status RoundsPort::Seek(uint64_t applied, Time deadline, Offer* offer) {
  EpochEnd::Donors donors;
  const auto look = [&] {
    *offer = FindOffer(applied);
    donors = versions().epoch_end().FindDonors();
    return offer->member >= 0 || !donors.any;
  };
  const Status status = Drive(look, deadline);
  if (!status.ok() && status.code() != StatusCode::kTimeout) return status;
  const std::lock_guard lock(mutex_);
  const std::string what = "this rank has applied version " + std::to_string(applied) + " of '" +
                           bundle_.name + "', the log begins later, and ";
  if (offer->member < 0 && !donors.any)
    return Status::Exhausted(what +
                             "nobody is left who could give it a snapshot: all others have "
                             "left, died, or need one themselves");
  if (offer->member >= 0 && offer->length_bytes == 0) {
    const Rank donor = group_->members[static_cast<size_t>(offer->member)];
    return Status::Exhausted("rank " + std::to_string(ToInt(donor)) +
                                 " has no room in its arena for a snapshot, which this rank needs: "
                                 "raise COVEY_ARENA_BYTES, or log= of the method",
                             donor);
  }
  const Time now = clock_->Now();
  if (offer->member >= 0 || donors.any_unfinished || seeking_since_ == 0)
    seeking_since_ = offer->member >= 0 ? 0 : now;
  if (seeking_since_ == 0 || now - seeking_since_ < MaxWait(kLeastAtEnd)) return Status::Ok();
  seeking_since_ = 0;
  return Status::Timeout(what +
                         "the others, who are in finish(), have not given it a snapshot for "
                         "max_wait");
}

void RoundsPort::Close() {
  {
    const std::lock_guard lock(mutex_);
    versions().epoch_end().Leave();
  }
  Stir();
}

}  // namespace covey
