#include "core/replicated/replica.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/replicated/new_contributions.h"

namespace covey {
namespace {

// At most this part of election_timeout counts between two looks of a replica: it was stopped
// itself, and the leader's messages lie before it.
constexpr Time kLooks = 4;

// The length of a message with all fields and the longest body but for a state: words of members,
// or a shard.
size_t LongestBytes(const RoundMemory& geometry, const ShardLimits& limits) {
  constexpr size_t kLine = 64;  // a shard ends with one
  const size_t shard = std::max(limits.least_bytes, limits.most_bytes) + kLine;
  return ReplicaMessage::MostHeadBytes(geometry) +
         std::max(ReplicaMessage::MostPackedBytes(geometry), shard);
}

// Whether a hub, if the message names one, has a role.
bool HasHub(const ReplicaMessage& message) {
  return message.hub == 0 || (message.hub <= message.roles.size() &&
                              message.roles[static_cast<size_t>(message.hub) - 1] > 0);
}

}  // namespace

Replica::Replica(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout)
    : options_(options),
      shape_(shape),
      layout_(layout),
      geometry_(shape, layout),
      longest_bytes_(LongestBytes(geometry_, options.limits)),
      log_(shape.size, static_cast<uint64_t>(shape.log)),
      contributions_(NewContributions(geometry_, options.kernels)),
      pending_(*contributions_),
      formations_({.self = options.self,
                   .geometry = &geometry_,
                   .kernels = options.kernels,
                   .average = options.average,
                   .limits = options.limits,
                   .outbox = &outbox_},
                  &log_, contributions_.get(), options.election_timeout / kLooks),
      votes_(static_cast<size_t>(shape.size)),
      lost_(static_cast<size_t>(shape.size)),
      heard_at_(static_cast<size_t>(shape.size)),
      witness_(options.has_witness && shape.size % 2 == 0, options.self),
      max_wait_(options.max_wait) {
  CHECK(options.hosts.size() == votes_.size(), "each member lies on a host");
  log_.AcceptNoOp(term_);
  if (options.self != leader_) return;
  BecomeLeader();
  leader_state_->BeginFirst();
}

// ---- The network --------------------------------------------------------------------------------

void Replica::OnMessage(int32_t from, Slice bytes, Time now) {
  ReplicaMessage message;
  if (has_departed_ || !ReplicaMessage::Decode(std::move(bytes), &message) ||
      !message.Unpack(geometry_) || !IsSound(message))
    return;
  has_heard_ = true;
  NoteCut(from, now);
  heard_at_[static_cast<size_t>(from)] = now;
  // replicated-W7: whatever comes from a leader or a follower says that it runs: sums take long.
  if (leader_state_ != nullptr) leader_state_->OnHeard(from, now);
  if (from == leader_ && message.term == term_) {
    silent_ = 0;
    led_at_ = now;
    EndCanvass();
  }
  Handle(from, std::move(message), now);
  Drain(now);
}

size_t Replica::LongestMessageBytes() const {
  // A snapshot is a state as its writer packs it: this side does not know how long.
  constexpr size_t kStates = 64, kBesideTheModel = size_t{4} << 30;
  return longest_bytes_ + (need_ > 0 ? kStates * layout_.length_bytes() + kBesideTheModel : 0);
}

// All else that it carries, once it is unpacked, is as long as was agreed.
bool Replica::IsSound(const ReplicaMessage& message) const {
  const auto size = static_cast<size_t>(shape_.size);
  switch (message.kind) {
    case Kind::kContribution:
      return message.content.count == 0 || message.hypers.size() == geometry_.hypers();
    case Kind::kAppendEntry:
      return HasHub(message) && message.holders.size() == size;
    case Kind::kPropose:
      return HasHub(message);
    case Kind::kPiece:
      return message.stage != ShardStage::kNone && message.relay <= size;
    case Kind::kRelay:
      return message.stage != ShardStage::kNone && message.relay > 0 && message.relay <= size;
    case Kind::kHeartbeat:
      return message.snapshot_to <= size;
    default:
      return true;
  }
}

void Replica::Handle(int32_t from, ReplicaMessage message, Time now) {
  // replicated-W7c: how far any replica knows counts in whatever term it is told.
  NoteKnown(message);
  // replicated-W7: a later term ends this one; its leader is not known yet.
  if (message.term > term_) Follow(message.term);
  if (message.kind == Kind::kSnapshot) return OnSnapshot(from, std::move(message));
  if (message.kind == Kind::kLeave) return OnLeave(from, message);
  if (message.kind == Kind::kFetch) return formations_.OnFetch(from, message);
  if (message.kind == Kind::kPiece || message.kind == Kind::kRelay) {
    if (leader_state_ != nullptr) leader_state_->OnPiece(message.made, now);
    if (message.kind == Kind::kRelay) return Relay(from, std::move(message));
    const int32_t author = message.relay == 0 ? from : static_cast<int32_t>(message.relay) - 1;
    formations_.OnPiece(author, std::move(message), now);
    return AcceptWhole();
  }
  if (message.term < term_) {
    const bool is_leaders =
        message.kind == Kind::kRequestVote || message.kind == Kind::kRequestPreVote ||
        message.kind == Kind::kHeartbeat || message.kind == Kind::kAppendEntry ||
        message.kind == Kind::kFastForward || message.kind == Kind::kPropose;
    // replicated-W7: messages of a term that is over are dropped; a leader learns the new one.
    if (is_leaders && from != options_.self) SendAppendResponse(from);
    return;
  }
  switch (message.kind) {
    case Kind::kRequestPreVote:
      return OnRequestPreVote(from, message);
    case Kind::kPreVoteGranted:
      return OnVote(from, Standing::kPreCandidate);
    case Kind::kRequestVote:
      return OnRequestVote(from, message);
    case Kind::kVoteGranted:
      return OnVote(from, Standing::kCandidate);
    case Kind::kAppendResponse:
      if (leader_state_ != nullptr && !leader_state_->OnAppendResponse(from, message))
        Follow(term_ + 1);
      return AcceptWhole();
    case Kind::kContribution:
      if (leader_state_ != nullptr) leader_state_->OnContribution(from, std::move(message));
      return;
    case Kind::kContributionAck:
      pending_.OnConsumed(message.consumed);
      pending_.OnAck(message.content);
      going_on_.OnDropped(pending_.Drop(message.dropped));
      return SendContributions();
    case Kind::kHeartbeat:
      LearnLeader(from, now);
      return OnHeartbeat(std::move(message));
    case Kind::kPropose:
      LearnLeader(from, now);
      formations_.Propose(message.TakeEntry(), term_, now);
      return AcceptWhole();
    case Kind::kAppendEntry:
      LearnLeader(from, now);
      return OnAppendEntry(std::move(message), now);
    case Kind::kFastForward:
      LearnLeader(from, now);
      if (message.executed > executed())
        log_.Skip({.version = message.executed,
                   .made = message.made,
                   .consumed = message.list,
                   .missing = message.missing});
      NoteCommitted();
      return SendAppendResponse(leader_);
    default:
      return;
  }
}

// Hands a piece on unchanged, whichever version it is of.
void Replica::Relay(int32_t from, ReplicaMessage piece) {
  const int32_t to = static_cast<int32_t>(piece.relay) - 1;
  piece.kind = Kind::kPiece;
  piece.relay = 1 + static_cast<uint64_t>(from);
  outbox_.Send(to, std::move(piece));
}

void Replica::NoteKnown(const ReplicaMessage& message) {
  const uint64_t told = std::max(message.known_committed, message.executed);
  // replicated-W25: hearsay of what is lost.
  if (told < known_.version || known_.IsLost(told, message.known_made)) return;
  if (told > known_.version) known_.made = {};
  known_.version = told;
  if (message.known_made.term > 0) known_.made = message.known_made;
  CommitKnown();
  formations_.OnCommitted(known_, term_, looked_at_);
}

void Replica::OnHeartbeat(ReplicaMessage heartbeat) {
  if (heartbeat.made.term > known_.lost_before) ForgetLost(heartbeat.version, heartbeat.made.term);
  AcceptNoOp(heartbeat);
  heartbeat_ = {.term = term_,
                .executed = heartbeat.executed,
                .number = heartbeat.number,
                .over = heartbeat.over,
                .quiet = heartbeat.quiet,
                .lacks_committed = heartbeat.lacks_committed,
                .settled = heartbeat.settled,
                .goes_on = heartbeat.goes_on,
                .has_ended = heartbeat.has_ended,
                .are_any_there = heartbeat.are_any_there,
                .is_any_behind = heartbeat.is_any_behind,
                .statuses = std::move(heartbeat.list),
                .snapshot_to = heartbeat.snapshot_to,
                .snapshot_version = heartbeat.snapshot_version,
                .needs = std::move(heartbeat.needs),
                .mets = std::move(heartbeat.mets),
                .silences = std::move(heartbeat.silences)};
  all_in_need_ = AreAllInNeed(heartbeat_) ? all_in_need_ + 1 : 0;
  if (leader_ != options_.self && IsOnThisHost(leader_) && HearsAnotherHost(heartbeat_))
    heard_host_at_ = heard_at_[static_cast<size_t>(leader_)];
  GiveKept();
  SendAppendResponse(leader_);
}

// All but those that have left or are dead.
bool Replica::AreAllInNeed(const Heartbeat& heartbeat) const {
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self || lost_[index] || heartbeat.statuses[index] == kHasLeft) continue;
    if (heartbeat.needs[index] == 0) return false;
  }
  return true;
}

void Replica::OnSnapshot(int32_t from, ReplicaMessage snapshot) {
  if (need_ == 0 || snapshot.version <= snapshot_.version) return;
  snapshot_ = {.from = from, .version = snapshot.version, .state = std::move(snapshot.body)};
}

void Replica::OnAppendEntry(ReplicaMessage entry, Time now) {
  const std::optional<ReplicatedEntry>& accepted = log_.uncommitted();
  const bool is_committed = entry.version <= entry.executed;
  if (entry.version == executed() + 1 ||
      (shape_.models.on() && is_committed && entry.version > executed())) {
    // replicated-W16: it has the same bytes already.
    if (accepted.has_value() && accepted->made == entry.made) {
      // replicated-W5: committed already when it was sent: its sender may have the next one.
      is_committed ? log_.Commit() : log_.Repropose(term_);
    } else {
      std::vector<bool> holders;
      for (size_t i = 0; i < entry.holders.size(); ++i)
        holders.push_back(entry.holders[i] && !lost_[i] &&
                          static_cast<int32_t>(i) != options_.self);
      formations_.Complete(entry.TakeEntry(), term_, is_committed, holders, now);
    }
    NoteCommitted();
    AcceptWhole();
  }
  SendAppendResponse(leader_);
}

// The next version, when its sum is whole here.
void Replica::AcceptWhole() {
  if (leader_state_ != nullptr && leader_state_->IsForming()) {
    if (formations_.IsWhole(term_)) leader_state_->OnOwnWhole();
    // replicated-W19: an attempt that a group cannot make is abandoned while its leader may.
    if (!leader_state_->MayAccept()) return;
    formations_.AddHolders(leader_state_->Makers());
  }
  while (std::optional<Formations::Whole> whole = formations_.Take(term_)) {
    if (whole->entry.version > executed() + 1)
      log_.GoOnFrom(std::move(whole->entry));
    else if (whole->is_committed)
      log_.Learn(std::move(whole->entry));
    else
      log_.Propose(std::move(whole->entry), term_);
    CommitKnown();
    NoteCommitted();
    if (leader_ >= 0) SendAppendResponse(leader_);
  }
}

// A leader counts for itself (LeaderState).
void Replica::CommitKnown() {
  const std::optional<ReplicatedEntry>& accepted = log_.uncommitted();
  // replicated-W16: an accepted version is committed only if that very entry is, of that attempt.
  if (leader_state_ != nullptr || !accepted.has_value() || accepted->version != known_.version ||
      accepted->made != known_.made)
    return;
  log_.Commit();
  NoteCommitted();
}

void Replica::NoteCommitted() {
  if (executed() > elections_at_) {
    elections_ = 0;
    moved_at_ = looked_at_;
  }
  elections_at_ = executed();
  if (leader_state_ == nullptr) going_on_.Adopt(&log_);
  formations_.OnCommitted(known_, term_, looked_at_);
  pending_.OnConsumed(log_.consumed()[static_cast<size_t>(options_.self)]);
  pending_.OnExecuted(executed());
  SendContributions();
}

Time Replica::Advance(Time now) {
  if (has_departed_) return kNever;
  const Time away = now - looked_at_;
  // replicated-W7: silence counts this replica's own running time: it may have been stopped itself.
  if (looked_at_ > 0) silent_ += std::min(away, options_.election_timeout / kLooks);
  if (looked_at_ == 0 || away > options_.election_timeout / 2) listens_since_ = now;
  looked_at_ = now;
  if (moved_at_ == 0) moved_at_ = now;
  Time until = now + options_.election_timeout / kLooks;
  if (leader_state_ == nullptr && silent_ >= ElectionTimeout()) Canvass();
  AdvanceElection();
  formations_.Advance(now);
  AcceptWhole();
  Drain(now);
  TimeFinish(now);
  until =
      std::min(until, going_on_.Wait(IsBehind(), heartbeat_.are_any_there, max_wait_, away, now));
  if (leaves_by_ < kNever && leader_state_ != nullptr && !leader_state_->has_begun_leave())
    leader_state_->BeginLeave();
  // Messages to itself may let it go on; others hear of a version before the next one.
  const uint64_t before = executed();
  for (bool moved = true; leader_state_ != nullptr && moved && executed() == before;) {
    until = std::min(until, leader_state_->Advance(lost_, now));
    // replicated-W14: what a leader has abandoned it never accepts.
    if (!leader_state_->IsForming()) formations_.Drop();
    NoteCommitted();
    moved = Drain(now);
  }
  if (executed() > before) until = now;
  if (leaves_by_ < kNever && (MayLeave() || now >= leaves_by_)) FinishLeave();
  return std::min(until, leaves_by_);
}

void Replica::SendAppendResponse(int32_t to) {
  const Progress& mine = log_.progress();
  ReplicaMessage response{.kind = Kind::kAppendResponse};
  response.version = mine.has_entry ? mine.executed + 1 : 0;
  response.accepted_term = mine.accepted_term;
  response.attempt = mine.attempt;
  response.shard = formations_.PiecesOf(&response.made);
  response.number = heartbeat_.term == term_ ? heartbeat_.number : 0;
  // It has finished once the leader has all it has published.
  // replicated-W7b: a rank has finished for the leader only when it has all its contributions.
  const bool is_early = MemberStatus{member_status_}.finished() && !pending_.AreAllSent();
  response.member_status = is_early ? member_status_ - 1 : member_status_;
  // replicated-W10: a donor has a trainer that serves, or the state that one has left.
  response.applied = has_parted_ || has_left_ ? going_on_.state().version : read_;
  response.tries = is_early ? 0 : tries_;
  response.max_wait = max_wait_;
  response.left = has_left_;
  response.need = need_;
  response.met = met_;
  response.goes_on = is_early ? 0 : going_on_.asks();
  response.cut = static_cast<uint64_t>(std::max<Time>(0, cut_until_ - looked_at_));
  if (to == leader_) told_status_ = response.member_status;
  outbox_.Send(to, std::move(response));
}

void Replica::SendContributions() {
  if (leader_ < 0) return;
  if (const Contributions::Pending* contribution = pending_.Send()) {
    ReplicaMessage message{.kind = Kind::kContribution};
    message.content = contribution->content;
    message.hypers = contribution->hypers;
    outbox_.Send(leader_, std::move(message));
  }
  if (pending_.AreAllSent() && told_status_ != member_status_) SendAppendResponse(leader_);
}

// To this replica what is to it.
bool Replica::Drain(Time now) {
  bool moved = false;
  do {
    for (QueuedMessage& queued : outbox_.Take()) {
      if (queued.to == options_.self)
        local_.push_back(std::move(queued));
      else
        encoded_.push_back({queued.to, queued.message.EncodeHead(),
                            queued.message.kind == Kind::kLeave, std::move(queued.message.body)});
    }
    if (local_.empty()) continue;
    moved = true;
    ReplicaMessage message = std::move(local_.front().message);
    local_.pop_front();
    CHECK(message.Unpack(geometry_), "a replica reads what it has written");
    Handle(options_.self, std::move(message), now);
  } while (!local_.empty() || !outbox_.empty());
  return moved;
}

std::vector<EncodedMessage> Replica::TakeMessages() { return std::exchange(encoded_, {}); }

}  // namespace covey
