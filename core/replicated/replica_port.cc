#include "core/replicated/replica_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace covey {
namespace {

// A replica is taken to be silent, and left out, long before the network gives its rank up.
constexpr Time kSilencesPerLease = 10;
constexpr Time kLeastSilence = 100 * kMillisecond;
// A member sends and takes about two sums for each version, and its other messages wait meanwhile:
// as long as 1 Gbit/s takes.
constexpr Time kGracePerByte = 2 * 8;
// Buffers of sums that are not committed: the trainer's, two that are published, the one in the
// making, its pieces, and early pieces.
constexpr size_t kBuffersBesideLog = 3 + 1 + 1 + 3;
// Besides, of models: two more that are published, what its work began from, and what it has
// offered of that.
constexpr size_t kBuffersOfModels = 4;
// How long the kLeave of one that leaves waits for room in the network.
constexpr Time kLeaveTimeout = kSecond;

}  // namespace

ReplicaPort::ReplicaPort(Bundle bundle, const Group* group, std::vector<int32_t> hosts,
                         Driver driver)
    : RoundsPort(std::move(bundle), group), driver_(std::move(driver)), hosts_(std::move(hosts)) {
  if (driver_.clock != nullptr) clock_ = driver_.clock;
}

std::vector<size_t> ReplicaPort::MemberBytes() const {
  const auto size = static_cast<size_t>(bundle_.shape.size);
  const size_t buffers = memory_.log() + kBuffersBesideLog + (has_models() ? kBuffersOfModels : 0);
  return std::vector<size_t>(size, buffers * layout().length_bytes());
}

void ReplicaPort::Open(const std::vector<uint64_t>& places) {
  channel_ = places[0];
  const auto length = static_cast<Time>(layout().length_bytes());
  const Time silence = std::max(driver_.lease / kSilencesPerLease, kLeastSilence);
  const Rounds::Options& options = bundle_.options;
  replica_ = std::make_unique<Replica>(
      Replica::Options{.self = options.self,
                       .admission = options.admission,
                       .max_wait = options.max_wait > 0 ? options.max_wait : kNever,
                       .skips_ahead = options.skips_ahead,
                       .average = options.average,
                       .election_timeout = silence + length * kGracePerByte,
                       .kernels = options.kernels,
                       .hosts = hosts_,
                       .limits = {},
                       .has_witness = driver_.ask_witness != nullptr},
      bundle_.shape, bundle_.layout);
}

Status ReplicaPort::Hold(uint64_t, std::vector<std::byte*>*, size_t*) {
  return Status::Unsupported("results cannot be read in place where members share no memory");
}

Status ReplicaPort::Retract(const std::byte** content) {
  const std::lock_guard lock(mutex_);
  if (replica_->Withdraw(content)) return Status::Ok();
  return Status::Unsupported("what was sent to another host cannot be taken back");
}

Status ReplicaPort::Merge(uint64_t version, std::span<void* const> to, Merged* merged) {
  const std::lock_guard lock(mutex_);
  if (replica_->step() == 0 && !replica_->IsSettled())
    return Status::InvalidArgument("merging with version " + std::to_string(version) + " of '" +
                                   bundle_.name + "': this rank has published no model");
  // In finish() it may have given up before any version was made.
  if (version > replica_->executed()) return NotMade(version);
  replica_->Merge(version, to, merged);
  return Status::Ok();
}

Status ReplicaPort::Begin() {
  const std::lock_guard lock(mutex_);
  replica_->Begin();
  return Status::Ok();
}

uint64_t ReplicaPort::OfferAgain(std::span<const double> hypers) {
  uint64_t step = 0;
  {
    const std::lock_guard lock(mutex_);
    step = replica_->OfferAgain(hypers);
  }
  Stir();
  return step;
}

Status ReplicaPort::Peek(int32_t member, std::span<void* const> to, Seen* seen) {
  if (member != bundle_.options.self)
    return Status::Unsupported("the models of '" + bundle_.name +
                               "' lie in memory of other hosts, where this rank cannot look at "
                               "them: their ranks have to be asked");
  const std::lock_guard lock(mutex_);
  seen->whole = true;
  const Contributions::Pending* own = replica_->published();
  if (own == nullptr) return Status::Ok();
  seen->step = own->content.last;
  seen->superseded = memory_.models().HasSuperseded(seen->step, replica_->executed());
  for (size_t i = 0; i < to.size(); ++i)
    std::memcpy(to[i], own->sum.data() + layout().offsets_bytes()[i], layout().lengths_bytes()[i]);
  return Status::Ok();
}

bool ReplicaPort::IsAsked(uint64_t applied, uint64_t* unused) {
  const std::lock_guard lock(mutex_);
  *unused = Transport::kNoOffset;
  return replica_->IsAsked(applied, clock_->Now());
}

void ReplicaPort::Give(uint64_t version, uint64_t, std::span<const Snapshots::Part> parts,
                       uint64_t* unused) {
  *unused = Transport::kNoOffset;
  Bytes state;
  for (const Snapshots::Part& part : parts)
    state.insert(state.end(), part.data, part.data + part.length_bytes);
  {
    const std::lock_guard lock(mutex_);
    replica_->Give(version, std::move(state));
  }
  Stir();
}

Offer ReplicaPort::FindOffer(uint64_t) {
  if (snapshot_.version == 0) replica_->RequestSnapshot(&snapshot_);
  if (snapshot_.version == 0) return {};
  return {.member = snapshot_.from,
          .version = snapshot_.version,
          .length_bytes = snapshot_.state.size()};
}

bool ReplicaPort::Take(const Offer& offer, std::byte* to) {
  const std::lock_guard lock(mutex_);
  if (snapshot_.version != offer.version || snapshot_.from != offer.member) return false;
  std::memcpy(to, snapshot_.state.data(), snapshot_.state.size());
  snapshot_ = {};
  ++counters_.snapshots;
  return true;
}

void ReplicaPort::Interrupt() {
  const std::lock_guard lock(mutex_);
  waiters_.Interrupt();
}

bool ReplicaPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  return replica_->HaveAllLeft();
}

// Its contributions have to count, and the versions it leads to become known: not a matter of its
// process alone.
void ReplicaPort::Settle(Time deadline) {
  {
    const std::lock_guard lock(mutex_);
    replica_->Leave();
    replica_->LeaveGracefully(deadline);
  }
  Stir();
  // It leaves all the same.
  const Status settled =
      DriveOn([this] { return replica_->has_departed() && is_sent_; }, deadline + kLeaveTimeout);
  if (!settled.ok()) return;
}

size_t ReplicaPort::LongestMessageBytes() {
  const std::lock_guard lock(mutex_);
  return replica_->LongestMessageBytes();
}

void ReplicaPort::OnMessage(int32_t from, Slice message, Time now) {
  const std::lock_guard lock(mutex_);
  replica_->OnMessage(from, std::move(message), now);
}

void ReplicaPort::OnLoss(int32_t member) {
  const std::lock_guard lock(mutex_);
  replica_->OnLoss(member);
}

ChannelPort::Pass ReplicaPort::Advance(Time now, bool is_sent) {
  const std::lock_guard lock(mutex_);
  is_sent_ = is_sent;
  Pass pass;
  HearWitness(now);
  pass.until = replica_->Advance(now);
  AskWitness();
  pass.messages = replica_->TakeMessages();
  if (!pass.messages.empty()) is_sent_ = false;
  pass.moved = waiters_.Check();
  pass.is_busy = replica_->IsBusy();
  WatchSilence(now);
  if (driver_.ask_witness != nullptr) WatchWitness(now);
  return pass;
}

void ReplicaPort::HearWitness(Time now) {
  if (driver_.hear_witness == nullptr) return;
  for (WitnessAnswer answer; driver_.hear_witness(channel_, &answer);)
    replica_->OnWitness(answer, now);
}

void ReplicaPort::AskWitness() {
  if (driver_.ask_witness == nullptr) return;
  while (const std::optional<WitnessRequest> request = replica_->TakeWitnessRequest())
    driver_.ask_witness(channel_, *request);
}

std::string ReplicaPort::NamesOf(const std::vector<int32_t>& members) const {
  std::string names;
  for (const int32_t member : members)
    names += (names.empty() ? "rank " : ", rank ") +
             std::to_string(ToInt(group_->members[static_cast<size_t>(member)]));
  return names;
}

void ReplicaPort::WatchWitness(Time now) {
  if (!has_missed_witness_ && replica_->WitnessSilence(now) > driver_.lease / 2) {
    has_missed_witness_ = true;
    driver_.log->Write(
        LogLevel::kWarn,
        "coveyrun, the witness of '" + bundle_.name + "', has not answered for " +
            std::to_string(replica_->WitnessSilence(now) / kMillisecond) +
            " ms: without it no half of the ranks makes versions, only more than half of them");
  }
  const Versions::Lack& lost = replica_->lost_versions();
  if (lost.last == 0 || lost.last == told_lost_) return;
  told_lost_ = lost.last;
  driver_.log->Write(LogLevel::kWarn, "versions " + std::to_string(lost.first) + " to " +
                                          std::to_string(lost.last) + " of '" + bundle_.name +
                                          "' are lost: only ranks had them that are dead (of " +
                                          NamesOf(lost.gone) + "); training goes on from version " +
                                          std::to_string(lost.first - 1));
}

void ReplicaPort::WatchSilence(Time now) {
  if (driver_.warning == 0 || waiters_.empty() || now < next_warning_) return;
  const std::vector<Replica::Silence> silences = replica_->MissingForQuorum(now);
  if (silences.empty()) no_quorum_since_ = 0;
  if (!silences.empty() && no_quorum_since_ == 0) no_quorum_since_ = now;
  if (no_quorum_since_ == 0 || now - no_quorum_since_ < MaxWait(0)) return;
  next_warning_ = now + driver_.warning;
  std::string who;
  for (const Replica::Silence& silence : silences)
    who += (who.empty() ? "rank " : ", rank ") +
           std::to_string(ToInt(group_->members[static_cast<size_t>(silence.member)])) + " for " +
           std::to_string(silence.since / kSecond) + " s";
  driver_.log->Write(
      LogLevel::kWarn,
      "version " + std::to_string(replica_->executed() + 1) + " of '" + bundle_.name +
          "' is held up, longer than max_wait: without shared memory a version needs a majority of "
          "the ranks (of exactly half: " +
          (driver_.ask_witness == nullptr ? "the first" : "the vote of coveyrun") +
          "), and these are silent: " + who +
          "; it goes on when enough of them answer, or are found to be dead");
}

}  // namespace covey
