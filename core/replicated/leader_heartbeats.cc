// The heartbeats of a leader, and when a leader that leaves has told all replicas enough.
#include <algorithm>
#include <utility>

#include "core/replicated/leader_state.h"

namespace covey {
namespace {

constexpr uint64_t kMostHeartbeats = 2;  // that a replica has not answered
constexpr Time kHeartbeatsPerTimeout = 4;
// A leave takes what others lack away for ever: it waits for longer than a leader does.
constexpr Time kLeaveTimeouts = 4;

}  // namespace

// The state of a dead member is told here: this leader has read all its messages. A replica that
// hears of the death otherwise may not have the versions that the member is in.
uint64_t LeaderState::StatusOf(int32_t replica, const std::vector<bool>& lost) {
  return lost[static_cast<size_t>(replica)] ? kHasLeft : aggregator_.StatusOf(replica);
}

// The news of a heartbeat.
void LeaderState::NoteNews(const std::vector<bool>& lost) {
  std::vector<uint64_t> news{aggregator_.IsQuiet(lost) ? uint64_t{1} : 0,
                             LacksCommitted() ? uint64_t{1} : 0};
  settlement_.AddNews(&news);
  for (int32_t i = 0; i < size_; ++i) {
    news.push_back(StatusOf(i, lost));
    news.push_back(aggregator_.OverOf(i));
    const Follower& replica = followers_[static_cast<size_t>(i)];
    news.push_back(replica.met);
    news.push_back(replica.need > 0 ? 1 : 0);
  }
  // While there is no donor the requester rotates: that alone is no news.
  news.push_back(donor_ < 0 ? 0 : static_cast<uint64_t>(recipient_ + 1));
  news.push_back(static_cast<uint64_t>(donor_ + 1));
  if (news == news_) return;
  news_ = std::move(news);
  for (Follower& replica : followers_) replica.is_due = true;
}

Time LeaderState::SilenceOf(int32_t index, const std::vector<bool>& lost, Time now) const {
  const Follower& replica = followers_[static_cast<size_t>(index)];
  if (index == options_.self || lost[static_cast<size_t>(index)]) return 0;
  return std::max<Time>(0, now - std::max(replica.heard_at, begun_at_));
}

void LeaderState::BeginLeave() {
  has_begun_leave_ = true;
  last_executed_ = log_->executed();
  for (Follower& replica : followers_) {
    replica.is_due = true;
    replica.last_heartbeat = replica.heartbeats + 1;
  }
}

bool LeaderState::AreAllTold(const std::vector<bool>& lost, Time listens_since, Time now) const {
  for (int32_t i = 0; i < size_; ++i) {
    const Follower& replica = followers_[static_cast<size_t>(i)];
    // replicated-W7c: a leader leaves once all that it hears of know what it knows.
    if (i == options_.self || lost[static_cast<size_t>(i)]) continue;
    if (std::min(SilenceOf(i, lost, now), now - listens_since) >
        kLeaveTimeouts * options_.election_timeout)
      continue;
    if (replica.progress.executed < last_executed_ || replica.answered < replica.last_heartbeat)
      return false;
  }
  return true;
}

// The words of all members in a heartbeat.
Slice LeaderState::MemberStates(const std::vector<bool>& lost, Time now) {
  ReplicaMessage states{.kind = Kind::kHeartbeat};
  for (int32_t i = 0; i < size_; ++i) {
    states.list.push_back(StatusOf(i, lost));
    states.needs.push_back(followers_[static_cast<size_t>(i)].need > 0 ? 1 : 0);
    states.mets.push_back(followers_[static_cast<size_t>(i)].met);
    // A shorter silence means nothing, and each has another.
    const Time silence = SilenceOf(i, lost, now);
    const bool is_silent = silence > options_.election_timeout;
    states.silences.push_back(is_silent ? static_cast<uint64_t>(silence) : 0);
  }
  states.Pack(*geometry_);
  return states.body;
}

void LeaderState::SendHeartbeats(const std::vector<bool>& lost, Time now, Time* until) {
  Slice states;
  for (int32_t i = 0; i < size_; ++i) {
    Follower& replica = followers_[static_cast<size_t>(i)];
    // replicated-L1: two unanswered heartbeats at most: a stopped replica costs its peers no more.
    if (lost[static_cast<size_t>(i)] || replica.heartbeats - replica.answered >= kMostHeartbeats)
      continue;
    if (!replica.is_due && replica.next_heartbeat > now) {
      *until = std::min(*until, replica.next_heartbeat);
      continue;
    }
    replica.is_due = false;
    replica.next_heartbeat = now + options_.election_timeout / kHeartbeatsPerTimeout;
    ReplicaMessage heartbeat{.kind = Kind::kHeartbeat,
                             .version = outbox_->known().lost_after,
                             .made = {.term = outbox_->known().lost_before},
                             .number = ++replica.heartbeats};
    // replicated-W26: another version may follow until what is settled is accepted.
    heartbeat.quiet = aggregator_.IsQuiet(lost) && !settlement_.IsSettling();
    settlement_.Tell(i, &heartbeat);
    heartbeat.over = aggregator_.OverOf(i);
    if (donor_ == i) {
      heartbeat.snapshot_to = static_cast<uint64_t>(recipient_ + 1);
      heartbeat.snapshot_version = followers_[static_cast<size_t>(recipient_)].need;
    }
    heartbeat.is_no_op = !log_->uncommitted().has_value();
    heartbeat.lacks_committed = aggregator_.is_open() && LacksCommitted();
    if (states.empty()) states = MemberStates(lost, now);
    heartbeat.body = states;
    outbox_->Send(i, std::move(heartbeat));
    *until = std::min(*until, replica.next_heartbeat);
  }
}

}  // namespace covey
