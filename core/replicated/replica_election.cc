// A replica's elections; the rest of its protocol with others is in replica.cc.
#include <algorithm>
#include <memory>

#include "core/replicated/quorum.h"
#include "core/replicated/replica.h"

namespace covey {
namespace {

// A lower live rank adds this part of election_timeout to that of a replica.
constexpr Time kPatienceParts = 4;
constexpr int kMostDoublings = 6;

}  // namespace

void Replica::OnRequestVote(int32_t from, const ReplicaMessage& request) {
  const Progress theirs{.executed = request.executed,
                        .accepted_term = request.accepted_term,
                        .attempt = request.attempt,
                        .has_entry = request.version > 0};
  // replicated-W4: one vote in each term, so two replicas never lead the same one.
  if (voted_for_ >= 0 || leader_ >= 0) return;
  // replicated-W7: no vote for a candidate that is less up to date than this replica.
  if (!Progress::IsUpToDate(log_.progress(), theirs)) return;
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
  // replicated-W7: twice as patient after each vain election, or two candidates disturb each other.
  return timeout << std::min(elections_, kMostDoublings);
}

void Replica::StartElection() {
  // A replica that hears no other would only pile up messages for stopped ones.
  if (!has_heard_) return;
  Follow(term_ + 1);
  is_candidate_ = true;
  ++elections_;
  silent_ = 0;
  has_heard_ = false;
  voted_for_ = options_.self;
  std::fill(votes_.begin(), votes_.end(), false);
  votes_[static_cast<size_t>(options_.self)] = true;
  const Progress& mine = log_.progress();
  for (int32_t i = 0; i < shape_.size; ++i)
    if (i != options_.self && !lost_[static_cast<size_t>(i)])
      outbox_.Send(i, {.kind = Kind::kRequestVote,
                       .version = mine.has_entry ? mine.executed + 1 : 0,
                       .accepted_term = mine.accepted_term,
                       .attempt = mine.attempt});
  LeadIfElected();
}

void Replica::LeadIfElected() {
  // replicated-W4: a majority of votes, of the replicas that are not dead.
  if (is_candidate_ && IsQuorum(votes_, lost_)) BecomeLeader();
}

// Whether what it has accepted may be another entry than the one that was committed. Not if a
// majority of all has voted: that knows. Else those that had committed may all have left.
bool Replica::IsCommitUnknown() const {
  const std::vector<bool> nobody(votes_.size());
  const std::optional<ReplicatedEntry>& accepted = log_.uncommitted();
  if (!accepted.has_value() || known_.version <= log_.executed() || IsQuorum(votes_, nobody))
    return false;
  return known_.version != accepted->version || known_.made != accepted->made;
}

void Replica::BecomeLeader() {
  is_candidate_ = false;
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
                           .limits = options_.limits},
      shape_, &geometry_, term_, &log_, &outbox_);
  leader_state_->EndWith(last_);
  LearnLeader(options_.self, led_at_);
}

}  // namespace covey
