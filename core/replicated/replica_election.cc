// A replica's elections, and how it notices silence; the rest of its protocol is in replica.cc.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/replicated/quorum.h"
#include "core/replicated/replica.h"

namespace covey {
namespace {

// A lower live rank adds this part of election_timeout to that of a replica.
constexpr Time kPatienceParts = 4;
constexpr int kMostDoublings = 6;
constexpr int kMostCanvasses = 4;  // in vain
constexpr int kMostDeposed = 4;    // that count

}  // namespace

// Measures the silence that a message of another host ends. TCP sends again on a link that was gone
// only after as long a time.
void Replica::NoteCut(int32_t from, Time now) {
  if (IsOnThisHost(from)) return;
  // replicated-W17: silence while it was stopped itself tells nothing of its links.
  const Time silence = looked_at_ - std::max(heard_host_at_, listens_since_);
  if (heard_host_at_ > 0 && silence > options_.election_timeout) cut_until_ = now + silence;
  heard_host_at_ = now;
}

// Of the leader's heartbeat: a replica beside it has fewer messages of other hosts.
bool Replica::HearsAnotherHost(const Heartbeat& heartbeat) const {
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (!IsOnThisHost(i) && !lost_[index] && heartbeat.silences[index] == 0) return true;
  }
  return false;
}

void Replica::Follow(uint64_t term) {
  term_ = term;
  leader_ = voted_for_ = -1;
  witness_.Withdraw();
  standing_ = Standing::kFollower;
  told_status_ = 0;
  if (leader_state_ != nullptr) {
    fired_ += leader_state_->fired();
    abandoned_ += leader_state_->abandoned();
    ++deposed_;
  }
  leader_state_.reset();
  // replicated-W7b: contributions at the last leader are to be sent again.
  pending_.OnNewLeader();
}

void Replica::LearnLeader(int32_t from, Time now) {
  // replicated-W4: a candidate whose term another one leads is none any more: once the others are
  // lost it would have a quorum in that term, too.
  standing_ = Standing::kFollower;
  silent_ = 0;
  led_at_ = now;
  if (leader_ == from) return;
  leader_ = from;
  SendContributions();
}

bool Replica::IsUpToDate(const ReplicaMessage& request) const {
  const Progress theirs{.executed = request.executed,
                        .accepted_term = request.accepted_term,
                        .attempt = request.attempt,
                        .has_entry = request.version > 0};
  return Progress::IsUpToDate(log_.progress(), theirs);
}

// Within half of election_timeout: heartbeats come more often.
bool Replica::HearsLeader() const {
  if (leader_state_ != nullptr) return true;
  // Its silence counts anew from when it asks; the leader's next message ends that.
  if (standing_ == Standing::kPreCandidate) return false;
  return leader_ >= 0 && !lost_[static_cast<size_t>(leader_)] &&
         silent_ < options_.election_timeout / 2;
}

void Replica::OnRequestPreVote(int32_t from, const ReplicaMessage& request) {
  // replicated-W7: no vote against a leader that is heard; the answer says that others are there.
  if (HearsLeader() || !IsUpToDate(request)) return SendAppendResponse(from);
  outbox_.Send(from, {.kind = Kind::kPreVoteGranted});
}

void Replica::OnRequestVote(int32_t from, const ReplicaMessage& request) {
  // replicated-W4: one vote in each term, so two replicas never lead the same one.
  if (voted_for_ >= 0 || leader_ >= 0) return;
  // replicated-W7: no vote for a candidate that is less up to date than this replica.
  if (!IsUpToDate(request)) return;
  voted_for_ = from;
  silent_ = 0;
  outbox_.Send(from, {.kind = Kind::kVoteGranted});
}

// The lowest that lives is a candidate first; after a vain election it is more patient: a leader
// that is only slow gets its time.
Time Replica::ElectionTimeout() const {
  Time timeout =
      leader_ >= 0 && lost_[static_cast<size_t>(leader_)] ? 0 : options_.election_timeout;
  for (int32_t i = 0; i < options_.self; ++i)
    if (!lost_[static_cast<size_t>(i)] && i != leader_)
      timeout += options_.election_timeout / kPatienceParts;
  // replicated-W7: after all others, if it was deposed: a rank may lack the link to it alone.
  timeout +=
      std::min(deposed_, kMostDeposed) * shape_.size * (options_.election_timeout / kPatienceParts);
  // replicated-W7: twice as patient after each vain election, or two candidates disturb each other.
  return timeout << std::min(elections_, kMostDoublings);
}

// A rank that was cut off, and is back, would end the term of a leader that the others hear. Where
// it hears others and never the leader, that link is gone, and another leader may reach all.
void Replica::Canvass() {
  // A replica that hears no other would only pile up messages for stopped ones.
  if (!has_heard_) return;
  has_heard_ = false;
  if (standing_ == Standing::kPreCandidate && ++canvasses_ >= kMostCanvasses)
    return StartElection();
  RequestVotes(Standing::kPreCandidate);
}

void Replica::EndCanvass() {
  canvasses_ = 0;
  if (standing_ == Standing::kPreCandidate) standing_ = Standing::kFollower;
}

void Replica::StartElection() {
  Follow(term_ + 1);
  ++elections_;
  canvasses_ = 0;
  voted_for_ = options_.self;
  RequestVotes(Standing::kCandidate);
}

void Replica::RequestVotes(Standing standing) {
  witness_.Withdraw();
  // Pre-votes stay: they come late where the network is slow.
  if (std::exchange(standing_, standing) != standing)
    std::fill(votes_.begin(), votes_.end(), false);
  silent_ = 0;
  votes_[static_cast<size_t>(options_.self)] = true;
  const Progress& mine = log_.progress();
  const bool is_pre = standing == Standing::kPreCandidate;
  for (int32_t i = 0; i < shape_.size; ++i)
    if (i != options_.self && !lost_[static_cast<size_t>(i)])
      outbox_.Send(i, {.kind = is_pre ? Kind::kRequestPreVote : Kind::kRequestVote,
                       .version = mine.has_entry ? mine.executed + 1 : 0,
                       .accepted_term = mine.accepted_term,
                       .attempt = mine.attempt});
}

void Replica::OnVote(int32_t from, Standing standing) {
  if (standing_ != standing) return;
  votes_[static_cast<size_t>(from)] = true;
  AdvanceElection();
}

void Replica::AdvanceElection() {
  // replicated-W4: a majority of votes, of the replicas that are not dead.
  if (standing_ == Standing::kPreCandidate && HaveVotes(Witness::Question::kLook, term_ + 1))
    StartElection();
  if (standing_ == Standing::kCandidate && HaveVotes(Witness::Question::kVote, term_))
    BecomeLeader();
}

// Asks the witness where it decides.
bool Replica::HaveVotes(Witness::Question question, uint64_t term) {
  if (IsQuorum(votes_, lost_, witness_.HalfOf(question, term, log_.progress()))) return true;
  if (witness_.is_there() && IsQuorum(votes_, lost_, witness_.HalfIfWon()))
    witness_.Ask(question, term, log_.progress());
  return false;
}

std::optional<WitnessRequest> Replica::TakeWitnessRequest() {
  return witness_.TakeRequest(looked_at_);
}

void Replica::OnWitness(const WitnessAnswer& answer, Time now) {
  if (has_departed_ || !witness_.OnAnswer(answer)) return;
  const WitnessRecord& record = witness_.record();
  if (record.term > term_) {
    // replicated-W7: a later term ends this one; its leader is not known yet.
    Follow(record.term);
    witness_.Withdraw();
    has_heard_ = true;  // it asks again
  }
  NoteLost(record);
  AdvanceElection();
  Drain(now);
}

// Versions that the witness has accepted are committed: a leader without them leads because all
// that have them are dead.
void Replica::NoteLost(const WitnessRecord& record) {
  if (leader_state_ == nullptr || left_with_ > elected_with_.executed ||
      record.last() <= elected_with_.executed || record.accepted.accepted_term >= term_ ||
      Progress::IsUpToDate(record.accepted, elected_with_))
    return;
  // replicated-W25: what only dead ranks had is told, and the others go on.
  lost_versions_ = {.first = elected_with_.executed + 1,
                    .last = std::max(record.last(), lost_versions_.last),
                    .gone = Lost()};
}

// It leads for the dead, too, who may have told of versions that no other got. Ranks that have left
// have read theirs: these are lacking (replicated-W7c).
void Replica::GoOnWithoutTheDead(Half half) {
  const std::vector<bool> nobody(votes_.size());
  if (!witness_.is_there() || IsQuorum(votes_, nobody, half) || left_with_ > log_.executed())
    return;
  // The witness may have accepted versions of the dead alone.
  witness_.Ask(Witness::Question::kLook, term_, elected_with_);
  if (known_.version > log_.executed())
    lost_versions_ = {.first = log_.executed() + 1, .last = known_.version, .gone = Lost()};
  // replicated-W25: those that live go on from their own last version.
  ForgetLost(log_.executed() + (log_.uncommitted().has_value() ? 1 : 0), term_);
}

// Versions after `after` that were made in terms before `before`.
void Replica::ForgetLost(uint64_t after, uint64_t before) {
  known_.lost_after = after;
  known_.lost_before = before;
  if (!known_.IsLost(known_.version, known_.made)) return;
  known_.version = log_.executed();
  known_.made = log_.made();
}

std::vector<int32_t> Replica::Lost() const {
  std::vector<int32_t> lost;
  for (int32_t i = 0; i < shape_.size; ++i)
    if (lost_[static_cast<size_t>(i)]) lost.push_back(i);
  return lost;
}

// Whether what it has accepted may be another entry than the one that was committed. Not if a
// majority of all has voted: that knows. Else those that had committed may all have left.
bool Replica::IsCommitUnknown() const {
  const std::vector<bool> nobody(votes_.size());
  const std::optional<ReplicatedEntry>& accepted = log_.uncommitted();
  const Half half = witness_.HalfOf(Witness::Question::kVote, term_, log_.progress());
  if (!accepted.has_value() || known_.version <= log_.executed() || IsQuorum(votes_, nobody, half))
    return false;
  return known_.version != accepted->version || known_.made != accepted->made;
}

void Replica::BecomeLeader() {
  standing_ = Standing::kFollower;
  const Half half = witness_.HalfOf(Witness::Question::kVote, term_, log_.progress());
  if (half != Half::kWithThem) witness_.Withdraw();
  elected_with_ = log_.progress();
  formations_.Drop();
  // replicated-W7c: its accepted version may differ from the one departed ranks have read: it
  // proposes nothing and lacks committed entries.
  if (IsCommitUnknown()) log_.AcceptNoOp(term_);
  adopted_ += log_.uncommitted().has_value() ? 1 : 0;
  leader_state_ = std::make_unique<LeaderState>(
      LeaderState::Options{.self = options_.self,
                           .election_timeout = options_.election_timeout,
                           .admission = options_.admission,
                           .kernels = options_.kernels,
                           .hosts = options_.hosts,
                           .limits = options_.limits,
                           .witness = &witness_},
      shape_, &geometry_, term_, &log_, &outbox_);
  leader_state_->EndWith(last_);
  if (term_ > 1) GoOnWithoutTheDead(half);
  LearnLeader(options_.self, led_at_);
}

}  // namespace covey
