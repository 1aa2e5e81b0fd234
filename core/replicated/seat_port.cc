#include "core/replicated/seat_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

// A leader reads the pieces of all and writes them a version; while it does it may be silent.
constexpr Time kGracePerByte = 10;
constexpr size_t kBuffersOfAMember = 3;
// How long the word of one that leaves waits for room in the network.
constexpr Time kLastWords = kSecond;

}  // namespace

SeatPort::SeatPort(Bundle bundle, const Group* group, Driver driver)
    : RoundsPort(std::move(bundle), group), driver_(std::move(driver)) {
  if (driver_.clock != nullptr) clock_ = driver_.clock;
}

std::vector<size_t> SeatPort::MemberBytes() const {
  const auto size = static_cast<size_t>(bundle_.shape.size);
  const size_t buffers = memory_.log() + (size + 2) * kBuffersOfAMember;
  return std::vector<size_t>(size, buffers * layout().length_bytes());
}

void SeatPort::Open(const std::vector<uint64_t>& places) {
  channel_ = places[0];
  const auto length = static_cast<Time>(layout().length_bytes());
  const Rounds::Options& options = bundle_.options;
  seat_ = std::make_unique<Seat>(
      Seat::Options{.self = options.self,
                    .admission = options.admission,
                    .max_wait = options.max_wait > 0 ? options.max_wait : kNever,
                    .skips_ahead = options.skips_ahead,
                    .average = options.average,
                    .engine_grace = kSecond + length * bundle_.shape.size * kGracePerByte,
                    .kernels = options.kernels},
      bundle_.shape, bundle_.layout);
}

Status SeatPort::Hold(uint64_t, std::vector<std::byte*>*, size_t*) {
  return Status::Unsupported("results cannot be read in place where members share no memory");
}

Status SeatPort::Withdraw(const std::byte**) {
  return Status::Unsupported("what was sent to another host cannot be taken back");
}

Status SeatPort::Merge(uint64_t, std::span<void* const>, Merged*) {
  return Status::Unsupported("models are merged by ranks that share memory");
}

Status SeatPort::Look(int32_t, std::span<void* const>, Seen*) {
  return Status::Unsupported("models are looked at by ranks that share memory");
}

bool SeatPort::IsAsked(uint64_t applied, uint64_t* unused) {
  const std::lock_guard lock(mutex_);
  *unused = Transport::kNoOffset;
  return seat_->IsAsked(applied, clock_->Now());
}

void SeatPort::Give(uint64_t version, uint64_t, std::span<const Snapshots::Part> parts,
                    uint64_t* unused) {
  *unused = Transport::kNoOffset;
  Bytes state;
  for (const Snapshots::Part& part : parts)
    state.insert(state.end(), part.data, part.data + part.length_bytes);
  {
    const std::lock_guard lock(mutex_);
    seat_->Give(version, std::move(state));
  }
  Stir();
}

Offer SeatPort::FindOffer(uint64_t) {
  if (gift_.version == 0) seat_->Seek(&gift_);
  if (gift_.version == 0) return {};
  return {.member = gift_.from, .version = gift_.version, .length_bytes = gift_.state.size()};
}

bool SeatPort::Take(const Offer& offer, std::byte* to) {
  const std::lock_guard lock(mutex_);
  if (gift_.version != offer.version || gift_.from != offer.member) return false;
  std::memcpy(to, gift_.state.data(), gift_.state.size());
  gift_ = {};
  ++counters_.snapshots;
  return true;
}

void SeatPort::Interrupt() {
  const std::lock_guard lock(mutex_);
  stop_.store(true);
  for (const Waiter& waiter : waiters_) waiter.ended->store(true);
}

bool SeatPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  return seat_->HaveAllLeft();
}

// What it has published is to count, and what it leads to be known: not a matter of its process
// alone.
void SeatPort::Settle(Time deadline) {
  {
    const std::lock_guard lock(mutex_);
    seat_->Leave();
    seat_->Depart(deadline);
  }
  Stir();
  // It leaves all the same.
  const Status settled =
      DriveOn([this] { return seat_->has_parted() && is_sent_; }, deadline + kLastWords);
  if (!settled.ok()) return;
}

Status SeatPort::DriveOn(const Done& done, Time deadline) {
  std::atomic<bool> ended{false};
  {
    const std::lock_guard lock(mutex_);
    if (done()) return Status::Ok();
    if (stop_.load()) return Status::Aborted("this rank is shutting down");
    waiters_.push_back({&done, &ended});
  }
  driver_.drive(ended, deadline);
  const std::lock_guard lock(mutex_);
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.ended == &ended; });
  if (stop_.load()) return Status::Aborted("this rank is shutting down");
  if (ended.load()) return Status::Ok();
  return Status::Timeout("the deadline is over");
}

size_t SeatPort::LongestLetterBytes() {
  const std::lock_guard lock(mutex_);
  return seat_->LongestLetterBytes();
}

void SeatPort::OnLetter(int32_t from, const Bytes& letter, Time now) {
  const std::lock_guard lock(mutex_);
  seat_->OnLetter(from, letter, now);
}

void SeatPort::OnLoss(int32_t member) {
  const std::lock_guard lock(mutex_);
  seat_->OnLoss(member);
}

LetterPort::Pass SeatPort::Advance(Time now, bool is_sent) {
  const std::lock_guard lock(mutex_);
  is_sent_ = is_sent;
  Pass pass;
  pass.until = seat_->Advance(now);
  pass.posts = seat_->TakePosts();
  if (!pass.posts.empty()) is_sent_ = false;
  pass.moved = AskWaiters();
  pass.is_busy = seat_->IsBusy();
  WatchSilence(now);
  return pass;
}

bool SeatPort::AskWaiters() {
  bool any = false;
  for (const Waiter& waiter : waiters_) {
    if (waiter.ended->load() || !(*waiter.done)()) continue;
    waiter.ended->store(true);
    any = true;
  }
  return any;
}

void SeatPort::WatchSilence(Time now) {
  if (driver_.warning == 0 || waiters_.empty() || now < next_warning_) return;
  const std::vector<Seat::Silence> silences = seat_->HeldUpBy(now);
  if (silences.empty()) held_since_ = 0;
  if (!silences.empty() && held_since_ == 0) held_since_ = now;
  if (held_since_ == 0 || now - held_since_ < MaxWait(0)) return;
  next_warning_ = now + driver_.warning;
  std::string who;
  for (const Seat::Silence& silence : silences)
    who += (who.empty() ? "rank " : ", rank ") +
           std::to_string(ToInt(group_->members[static_cast<size_t>(silence.member)])) + " for " +
           std::to_string(silence.since / kSecond) + " s";
  driver_.log->Write(
      LogLevel::kWarn,
      "version " + std::to_string(seat_->executed() + 1) + " of '" + bundle_.name +
          "' is held up, longer than max_wait: without shared memory a version needs a majority of "
          "the ranks (of two: the first), and these are silent: " +
          who + "; it goes on when enough of them answer, or are found to be dead");
}

}  // namespace covey
