#include "core/replicated/settlement.h"

#include <utility>

namespace covey {

Settlement::Settlement(const RoundMemory& geometry, uint64_t term, const Parts& parts)
    : term_(term),
      has_models_(geometry.models().on()),
      length_(geometry.log()),
      parts_(parts),
      members_(static_cast<size_t>(geometry.size())) {}

void Settlement::OnAppendResponse(int32_t member, const ReplicaMessage& response) {
  Member& m = members_[static_cast<size_t>(member)];
  m.status = {response.member_status};
  m.applied = response.applied;
  m.executed = response.executed;
  m.need = response.need;
  m.has_left = response.left;
  if (m.asks != response.goes_on) m.may_go = 0;
  m.asks = response.goes_on;
}

void Settlement::Advance(const std::vector<bool>& lost, bool lacks_committed, uint64_t* attempts) {
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    // replicated-W26: also one whose finish() has ended with all, and that none has met.
    if (m.asks == 0 || lost[i] || m.status.times() != m.asks) continue;
    const uint64_t settled = parts_.log->settled();
    const bool is_of_it = settled > 0 && m.asks <= settled;
    // replicated-W26: where models' last version is not final others train on: it goes with them.
    const bool is_final = !has_models_ || parts_.aggregator->is_final();
    const bool goes_with_them = !is_of_it && (!is_final || HasAnyTrainedOn(m.asks, lost));
    if (!is_of_it && !goes_with_them && !lacks_committed) {
      // replicated-W26: an attempt of its own, so that no earlier one counts in its place.
      parts_.log->AcceptNoOp(term_, ++*attempts, m.asks);
      parts_.aggregator->Settle(m.asks);
      is_accepted_ = false;
    } else if (goes_with_them || lacks_committed || is_accepted_) {
      // replicated-W26: it goes on once no later leader can fire another version.
      m.may_go = m.asks;
    }
  }
  DropLate(lost);
}

// Whether a member that lives has published since it had finished so often.
bool Settlement::HasAnyTrainedOn(uint64_t times, const std::vector<bool>& lost) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const MemberStatus& other = members_[i].status;
    if (lost[i]) continue;
    if (other.times() > times || (other.times() == times && !other.finished())) return true;
  }
  return false;
}

// Whether a member that may still read is so far behind that it may not find its next version.
bool Settlement::IsAnyBehind(const std::vector<bool>& lost) const {
  const uint64_t last = parts_.log->executed();
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& m = members_[i];
    if (lost[i] || m.has_left || m.applied >= last) continue;
    // A replica that is behind may skip, also those versions that this leader has skipped.
    const bool may_skip = m.executed < last || m.applied + 1 < parts_.log->first();
    if (m.need > 0 || may_skip || m.applied + length_ < last) return true;
  }
  return false;
}

void Settlement::DropLate(const std::vector<bool>& lost) {
  bool any = false;
  // replicated-W27: only once that is accepted: a version may else be made of it yet.
  if (!IsSettled() || !parts_.aggregator->HasEnded(lost, &any)) return;
  for (size_t i = 0; i < members_.size(); ++i) {
    const MemberStatus& status = members_[i].status;
    if (lost[i] || !status.finished() || status.times() < parts_.log->settled()) continue;
    const uint64_t step = parts_.aggregator->DropLate(static_cast<int32_t>(i));
    if (step == 0) continue;
    ReplicaMessage ack{.kind = ReplicaMessage::Kind::kContributionAck};
    ack.dropped = step;
    ack.consumed = parts_.log->consumed()[i];
    parts_.outbox->Send(static_cast<int32_t>(i), std::move(ack));
  }
}

void Settlement::Look(const std::vector<bool>& lost) {
  has_ended_ = IsSettled() && parts_.aggregator->HasEnded(lost, &are_any_there_);
  is_any_behind_ = has_ended_ && !has_models_ && IsAnyBehind(lost);
}

void Settlement::Tell(int32_t member, ReplicaMessage* heartbeat) const {
  heartbeat->settled = parts_.log->settled();
  if (heartbeat->settled > 0) heartbeat->attempt = parts_.log->progress().attempt;
  heartbeat->goes_on = members_[static_cast<size_t>(member)].may_go;
  heartbeat->has_ended = has_ended_;
  heartbeat->are_any_there = has_ended_ && are_any_there_;
  heartbeat->is_any_behind = is_any_behind_;
}

void Settlement::AddNews(std::vector<uint64_t>* news) const {
  news->push_back(parts_.log->settled());
  news->push_back((has_ended_ ? 1u : 0u) + (has_ended_ && are_any_there_ ? 2u : 0u) +
                  (is_any_behind_ ? 4u : 0u) + (is_accepted_ ? 8u : 0u));
  for (const Member& m : members_) news->push_back(m.may_go);
}

}  // namespace covey
