// A replica's interface for its trainer; its protocol with the others is in replica.cc.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/group_barrier.h"
#include "core/replicated/quorum.h"
#include "core/replicated/replica.h"

namespace covey {
namespace {

// There is no donor once so many heartbeats in a row say so; before, a snapshot may be under way.
constexpr int kHeartbeatsInNeed = 4;
// A leave without a leader listens for so long after its election.
constexpr Time kLeaveTimeouts = 4;

}  // namespace

uint64_t Replica::next_step() const {
  if (shape_.models.on()) return step_ + 1;
  return (options_.skips_ahead || is_overdue_ ? std::max(step_, read_) : step_) + 1;
}

void Replica::EndWith(uint64_t version) {
  last_ = version;
  if (leader_state_ != nullptr) leader_state_->EndWith(version);
}

bool Replica::Withdraw(const std::byte** content) {
  // replicated-W29: before the last version is executed, versions may have it.
  if (executed() < last_) return false;
  *content = pending_.Withdraw();
  has_parted_ = true;
  return true;
}

// The leader lets versions fire.
void Replica::set_grace(Time grace) {
  options_.admission.grace = grace;
  if (leader_state_ != nullptr) leader_state_->set_grace(grace);
}

uint64_t Replica::Publish(std::span<const double> hypers) {
  if (going_on_.Drops(IsBehind())) return heartbeat_.executed + 1;
  CountFromLast();
  step_ = next_step();
  pending_.Publish(step_, hypers);
  return Arrive();
}

uint64_t Replica::Skip() {
  if (going_on_.Drops(IsBehind())) return heartbeat_.executed + 1;
  CountFromLast();
  step_ = next_step();
  pending_.Skip(step_);
  return Arrive();
}

uint64_t Replica::Arrive() {
  if (MemberStatus{member_status_}.finished()) ++member_status_;
  SendContributions();
  return step_;
}

Found Replica::Read(uint64_t version, std::span<void* const> to, RoundRecord* record) {
  if (version > executed()) return Found::kNotYet;
  const ReplicatedEntry* entry = log_.Find(version);
  if (entry == nullptr) return Found::kGone;
  RoundRecord known;
  if (record == nullptr) record = &known;
  ReadRecord(geometry_, entry->body.data(), record);
  const std::byte* from = entry->body.data() + geometry_.record_bytes();
  CHECK(to.empty() || !shape_.models.on(), "means are merged with, not read");
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] != nullptr)
      options_.kernels->copy(static_cast<std::byte*>(to[i]), from + layout_.offsets_bytes()[i],
                             layout_.lengths_bytes()[i], Stores::kCached);
  read_ = std::max(read_, version);
  is_overdue_ = record->missing[static_cast<size_t>(options_.self)] > 0;
  return Found::kYes;
}

bool Replica::IsAsked(uint64_t applied, Time) {
  return going_on_.WantsState(applied) || IsNamed(applied);
}

// As the donor of a snapshot.
bool Replica::IsNamed(uint64_t applied) const {
  return heartbeat_.term == term_ && heartbeat_.snapshot_to > 0 &&
         applied >= heartbeat_.snapshot_version && given_heartbeat_ != heartbeat_.number;
}

bool Replica::IsAnyInNeed() const {
  return std::any_of(heartbeat_.needs.begin(), heartbeat_.needs.end(),
                     [](uint64_t need) { return need > 0; });
}

bool Replica::RequestSnapshot(Snapshot* snapshot) {
  const uint64_t lowest = std::max(read_ + 1, log_.first() - 1);
  // replicated-W29: the log says first which of this rank's contributions are in the last version.
  const bool is_whole = snapshot_.version < last_ || executed() >= last_;
  if (snapshot_.version >= lowest && is_whole) {
    *snapshot = std::exchange(snapshot_, {});
    read_ = snapshot->version;
    // partial-W8a: the last version says whether it is overdue. If not, its late steps wait for no
    // other rank.
    is_overdue_ = log_.missing()[static_cast<size_t>(options_.self)] > 0;
    need_ = 0;
    if (leader_ >= 0) SendAppendResponse(leader_);
    return true;
  }
  if (need_ == lowest) return false;
  need_ = lowest;
  if (leader_ >= 0) SendAppendResponse(leader_);
  return false;
}

void Replica::Finish() {
  const MemberStatus member_status{member_status_};
  pending_.OnFinished();
  if (!member_status.finished() || HasGivenUp()) ++tries_;
  if (!member_status.finished()) ++member_status_;
  SendContributions();
  if (leader_ >= 0) SendAppendResponse(leader_);
}

void Replica::GoOn() {
  // partial-W8b: as Rounds has it: not one of models that has published further ahead.
  const bool is_ahead = shape_.models.on() && step_ > executed();
  CountFromLast();
  if (MemberStatus{member_status_}.finished() && !is_ahead) ++member_status_;
}

// After a finish(): steps may have gone into fewer versions, and versions be made without this one.
void Replica::CountFromLast() {
  if (MemberStatus{member_status_}.finished()) step_ = std::max(step_, executed());
}

void Replica::Leave() {
  has_left_ = true;
  Finish();
}

std::vector<int32_t> Replica::Unfinished() {
  return MissingMembers(shape_.size, [this](int32_t i) {
    return i == options_.self || lost_[static_cast<size_t>(i)] || HasFinished(i);
  });
}

// As often as this one, or for good: as the leader has told it.
bool Replica::HasFinished(int32_t member) const {
  const auto index = static_cast<size_t>(member);
  return index < heartbeat_.statuses.size() &&
         MemberStatus{heartbeat_.statuses[index]}.times() >= MemberStatus{member_status_}.times();
}

EpochEnd::Donors Replica::FindDonors() {
  // replicated-W10: there is no donor when four heartbeats in a row say that all are in need.
  Donors donors{.any = all_in_need_ < kHeartbeatsInNeed};
  for (int32_t i = 0; i < shape_.size; ++i) {
    if (IsGone(i)) continue;
    const auto index = static_cast<size_t>(i);
    const bool is_known = index < heartbeat_.statuses.size();
    donors.any_unfinished |= !is_known || !MemberStatus{heartbeat_.statuses[index]}.finished();
  }
  return donors;
}

bool Replica::HasLeft(int32_t member) const {
  const auto index = static_cast<size_t>(member);
  return index < heartbeat_.statuses.size() && heartbeat_.statuses[index] == kHasLeft;
}

// Dead, or has left, or is this replica itself.
bool Replica::IsGone(int32_t member) const {
  return member == options_.self || lost_[static_cast<size_t>(member)] || HasLeft(member);
}

void Replica::Meet() {
  met_ = MemberStatus{member_status_}.times();
  if (leader_ >= 0) SendAppendResponse(leader_);
}

std::vector<int32_t> Replica::Unmet() {
  return MissingMembers(shape_.size, [&](int32_t i) {
    const auto index = static_cast<size_t>(i);
    const bool is_known = index < heartbeat_.mets.size();
    return (is_known && heartbeat_.mets[index] >= met_) || IsGone(i);
  });
}

bool Replica::HaveAllLeft() {
  const auto is_gone = [this](int32_t i) { return IsGone(i); };
  const bool is_given = pending_.empty() || (shape_.models.on() && IsSettled());
  return has_left_ && is_given && MissingMembers(shape_.size, is_gone).empty();
}

Versions::Lack Replica::Lacking() {
  if (!LacksCommitted()) return {};
  return {.first = executed() + 1, .last = known_.version, .gone = Lost()};
}

bool Replica::LacksCommitted() const {
  // replicated-W7c: a replica lacks entries if its leader does, as of the same versions.
  return heartbeat_.lacks_committed && heartbeat_.term == term_ &&
         heartbeat_.executed == log_.executed();
}

// ---- It leaves ----------------------------------------------------------------------------------

void Replica::LeaveGracefully(Time latest) {
  if (leaves_by_ == kNever) moved_at_ = 0;
  leaves_by_ = std::min(leaves_by_, latest);
}

// As of its last look, when all that had come was read.
bool Replica::MayLeave() const {
  const bool is_given =
      pending_.empty() || LacksCommitted() || looked_at_ - moved_at_ > options_.election_timeout;
  // replicated-W7c: others wait for what it has to send of the version that is being made.
  if (!is_given || formations_.IsForming(term_, looked_at_ - options_.election_timeout))
    return false;
  // replicated-W7c: a replica leaves when its leader knows as much, or when it hears of no other.
  if (leader_state_ != nullptr) return leader_state_->AreAllTold(lost_, listens_since_, looked_at_);
  return IsLedAsFar() || !HearsOfOthers();
}

// Any replica that may still read. A replica that has lost its leader says nothing until its
// ElectionTimeout is over, and this one is a candidate when its own is.
bool Replica::HearsOfOthers() const {
  const Time longest = ElectionTimeout() + kLeaveTimeouts * options_.election_timeout;
  for (int32_t i = 0; i < shape_.size; ++i) {
    if (IsGone(i)) continue;
    if (looked_at_ - std::max(heard_at_[static_cast<size_t>(i)], listens_since_) <= longest)
      return true;
  }
  return false;
}

// A leader that lives and is heard of knows what it knows.
bool Replica::IsLedAsFar() const {
  return leader_ >= 0 && !lost_[static_cast<size_t>(leader_)] &&
         silent_ <= options_.election_timeout && heartbeat_.term == term_ &&
         heartbeat_.executed >= log_.executed();
}

void Replica::FinishLeave() {
  ReplicaMessage leave{.kind = Kind::kLeave};
  leave.settled = log_.settled();
  if (leave.settled > 0) {
    leave.accepted_term = log_.progress().accepted_term;
    leave.attempt = log_.progress().attempt;
  }
  for (int32_t i = 0; i < shape_.size; ++i)
    // replicated-W7c: kLeave says how far this replica knows, so the others see what they lack.
    if (i != options_.self) outbox_.Send(i, leave);
  Drain(looked_at_);
  has_departed_ = true;
}

// The leader runs the clock of a finish(). Without a quorum there may be none: the last that was
// has left, say, while another rank is stopped.
void Replica::TimeFinish(Time now) {
  const bool is_alone = MemberStatus{member_status_}.finished() && !MissingForQuorum(now).empty();
  if (!is_alone) alone_since_ = 0;
  if (is_alone && alone_since_ == 0) alone_since_ = now;
  // replicated-W18: max_wait bounds a finish() without a quorum, too.
  if (is_alone && max_wait_ < kNever && now - alone_since_ >= max_wait_) over_alone_ = tries_;
}

// A replica that has lost its leader requests votes of all, at each ElectionTimeout: those that it
// has not heard since are silent, too.
std::vector<Replica::Silence> Replica::MissingForQuorum(Time now) const {
  std::vector<Silence> silences;
  std::vector<bool> answers(static_cast<size_t>(shape_.size), true);
  const bool is_led = leader_state_ == nullptr && standing_ == Standing::kFollower &&
                      silent_ <= options_.election_timeout && leader_ >= 0;
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self) continue;
    // replicated-W4: the dead do not count as members that answer.
    answers[index] = !lost_[index];
    if (lost_[index]) continue;
    Time since = 0;
    if (leader_state_ != nullptr)
      since = leader_state_->SilenceOf(i, lost_, now);
    else if (is_led)
      since =
          index < heartbeat_.silences.size() ? static_cast<Time>(heartbeat_.silences[index]) : 0;
    else if (heard_at_[index] <= led_at_ ||
             now - heard_at_[index] > ElectionTimeout() + options_.election_timeout)
      since = now - std::max(heard_at_[index], led_at_);
    if (since <= options_.election_timeout) continue;
    answers[index] = false;
    silences.push_back({i, since});
  }
  // replicated-W22: the witness is with those that lead, or are led, while it answers.
  const bool is_with =
      (is_led || leader_state_ != nullptr) && WitnessSilence(now) <= options_.election_timeout;
  const Half half = is_with || !witness_.is_there() ? witness_.HalfIfWon() : Half::kMissing;
  if (IsQuorum(answers, lost_, half)) silences.clear();
  return silences;
}

// As of one heartbeat. A dead rank has finished when the leader says so: this replica may hear of
// the loss before it hears of the versions that the rank was in.
bool Replica::IsFlushed() {
  const auto self = static_cast<size_t>(options_.self);
  // replicated-W27: it ends with what is settled, though its own model is not in it.
  if (IsSettled()) flushed_ = executed();
  const bool is_given = pending_.empty() || (shape_.models.on() && IsSettled());
  // replicated-W7d: all that is known as committed has come. replicated-W11: own steps too.
  bool all = is_given && heartbeat_.term == term_ && heartbeat_.quiet &&
             heartbeat_.executed == executed() && executed() >= known_.version &&
             heartbeat_.statuses[self] == member_status_;
  // replicated-W7d: a loss alone does not mean that a rank has finished.
  for (int32_t i = 0; all && i < shape_.size; ++i) all = i == options_.self || HasFinished(i);
  if (all) flushed_ = executed();
  return all;
}

}  // namespace covey
