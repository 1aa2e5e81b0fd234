// A replica's part in going on from finish() without other ranks: settlement.h, going_on.h.
#include <algorithm>
#include <utility>

#include "core/replicated/replica.h"

namespace covey {

// Nothing that an earlier term, or an earlier attempt, has proposed can be committed any more.
void Replica::AcceptNoOp(const ReplicaMessage& heartbeat) {
  if (!heartbeat.is_no_op || heartbeat.executed != executed()) return;
  const Progress& mine = log_.progress();
  // replicated-W7a: the leader asks for its no-op entry, in its term. replicated-W26: and for the
  // one that says what is settled.
  if (mine.accepted_term == term_ && mine.attempt >= heartbeat.attempt) return;
  Origin made;
  formations_.PiecesOf(&made);
  // replicated-W26: the leader has given it up, and what is whole late is not accepted.
  if (made.term == term_ && made.attempt < heartbeat.attempt) formations_.Drop();
  log_.AcceptNoOp(term_, heartbeat.attempt, heartbeat.settled);
}

void Replica::OnLeave(int32_t from, const ReplicaMessage& leave) {
  left_with_ = std::max(left_with_, leave.executed);
  going_on_.OnLeave(
      {.executed = leave.executed, .accepted_term = leave.accepted_term, .attempt = leave.attempt},
      leave.settled);
  if (leader_state_ == nullptr) going_on_.Adopt(&log_);
  OnLoss(from);
}

bool Replica::IsSettled() const {
  return heartbeat_.term == term_ && heartbeat_.quiet && heartbeat_.settled > 0 &&
         heartbeat_.executed == log_.executed();
}

// As of the last heartbeat: the others have ended finish() without this rank.
bool Replica::IsBehind() const {
  const MemberStatus status{member_status_};
  return heartbeat_.term == term_ && heartbeat_.has_ended &&
         heartbeat_.executed >= log_.executed() && !status.finished() &&
         status.times() < heartbeat_.settled;
}

bool Replica::GoOnWithout() {
  const uint64_t times = MemberStatus{member_status_}.times();
  if (going_on_.asks() != times) {
    going_on_.Ask(times);
    if (leader_ >= 0) SendAppendResponse(leader_);
  }
  const bool is_told =
      heartbeat_.term == term_ && heartbeat_.goes_on == times && heartbeat_.executed == executed();
  // replicated-W18: without a quorum no leader answers, and max_wait is over.
  if (!is_told && over_alone_ != tries_ && !LacksCommitted()) return false;
  if (is_told && heartbeat_.is_any_behind) going_on_.WantState(executed());
  // replicated-W21: all that have gone on take the final mean.
  if (IsSettled()) flushed_ = executed();
  going_on_.Ask(0);
  Meet();
  return true;
}

void Replica::Give(uint64_t applied, Bytes state) {
  // A heartbeat since then may ask for none, or for a later one: then it is kept, as is the state
  // of a trainer that leaves. replicated-W29: so it is after the last version.
  const bool is_kept = !IsNamed(applied) || going_on_.WantsState(applied) || applied >= last_;
  GoingOn::State given{.version = applied, .bytes = std::move(state)};
  if (is_kept) {
    going_on_.Keep(std::move(given));
    return GiveKept();
  }
  Send(given);
}

// For a trainer that may have gone.
void Replica::GiveKept() {
  const GoingOn::State& kept = going_on_.state();
  // replicated-W28: the state of a rank that has gone on serves those that come later.
  if (kept.version > 0 && IsNamed(kept.version)) Send(kept);
}

void Replica::Send(const GoingOn::State& state) {
  // Once for each heartbeat that asks: the leader goes on asking until it has come.
  given_heartbeat_ = heartbeat_.number;
  ReplicaMessage snapshot{.kind = Kind::kSnapshot, .version = state.version};
  snapshot.body = state.bytes;
  outbox_.Send(static_cast<int32_t>(heartbeat_.snapshot_to) - 1, std::move(snapshot));
}

}  // namespace covey
