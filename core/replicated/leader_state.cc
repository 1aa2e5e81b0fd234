#include "core/replicated/leader_state.h"

#include <algorithm>
#include <utility>

#include "core/partial/log.h"
#include "core/replicated/quorum.h"

namespace covey {
namespace {

constexpr int kMostDoublings = 10;
// The leader is the hub for so many times as long as it has waited for pieces in vain.
constexpr Time kHubTimeouts = 4;
// Heartbeats come several times in this part of election_timeout.
constexpr Time kHeard = 2;
// The longest time between two attempts of TCP to send the same bytes.
constexpr uint64_t kLongestRetry = 120 * kSecond;

Time LengthOf(uint64_t cut) { return static_cast<Time>(std::min(cut, kLongestRetry)); }

// Whether a replica of this progress has accepted the entry in this term.
bool HoldsEntry(const Progress& at, const ReplicatedEntry& entry, uint64_t term) {
  return at.has_entry && at.executed + 1 == entry.version && at.accepted_term == term &&
         entry.made == Origin{term, at.attempt};
}

}  // namespace

LeaderState::LeaderState(const Options& options, const RoundMemory::Shape& shape,
                         const RoundMemory* geometry, uint64_t term, ReplicatedLog* log,
                         Outbox* outbox)
    : options_(options),
      size_(shape.size),
      geometry_(geometry),
      term_(term),
      log_(log),
      outbox_(outbox),
      aggregator_(options.admission, shape, options.kernels),
      settlement_(*geometry, term, {.log = log, .aggregator = &aggregator_, .outbox = outbox}),
      followers_(static_cast<size_t>(shape.size)),
      // It leads by the vote of the witness: the others are silent.
      halved_{.asks = options.witness->HalfOf(Witness::Question::kVote, term, log->progress()) ==
                      Half::kWithThem} {
  if (log->uncommitted().has_value())
    // replicated-W7: a version that earlier terms may have committed is proposed again, as it is.
    log->Repropose(term);
  else
    // replicated-W26: what is settled stays so.
    log->AcceptNoOp(term, 0, log->settled());
}

void LeaderState::OnPiece(const Origin& made, Time now) {
  if (forming_.has_value() && made == Origin{term_, fired_}) forming_->OnPiece(now);
}

// Whether it has accepted the attempt under way.
bool LeaderState::HasMade(int32_t replica) const {
  const Progress& progress = followers_[static_cast<size_t>(replica)].progress;
  return progress.has_entry && progress.executed == log_->executed() &&
         progress.accepted_term == term_ && progress.attempt == fired_;
}

std::vector<bool> LeaderState::Makers() const {
  std::vector<bool> makers;
  for (int32_t i = 0; i < size_; ++i) makers.push_back(i != options_.self && HasMade(i));
  return makers;
}

// The leader gets pieces of its own group's mean alone.
void LeaderState::NoteAttempt(int32_t from, const ReplicaMessage& response) {
  if (!forming_.has_value() || !geometry_->models().on()) return;
  const Time now = followers_[static_cast<size_t>(from)].heard_at;
  if (response.made == Origin{term_, fired_}) forming_->OnPieces(from, response.shard, now);
  if (HasMade(from)) forming_->OnMade(from, now);
}

bool LeaderState::OnAppendResponse(int32_t from, const ReplicaMessage& response) {
  // replicated-W7c: a leader without a committed version ends its term once a replica has it, which
  // accepts nothing from this leader.
  if (LacksCommitted() && response.executed > log_->executed()) return false;
  Follower& replica = followers_[static_cast<size_t>(from)];
  replica.is_known = true;
  replica.progress = {.executed = response.executed,
                      .accepted_term = response.accepted_term,
                      .attempt = response.attempt,
                      .has_entry = response.version > 0};
  replica.applied = response.applied;
  replica.need = response.need;
  // replicated-W10: each replica says itself what it has applied and met.
  replica.met = std::max(replica.met, response.met);
  replica.answered = std::max(replica.answered, response.number);
  // replicated-W17: its links to others come back later than the one it answers by.
  if (response.cut > 0)
    replica.by_hub_until =
        std::max(replica.by_hub_until, replica.heard_at + LengthOf(response.cut));
  aggregator_.OnAppendResponse(from, response);
  settlement_.OnAppendResponse(from, response);
  NoteAttempt(from, response);
  // It has caught up: it is to hear that nothing is proposed, or that the last version is settled.
  const bool is_no_op = !log_->uncommitted().has_value();
  const bool is_behind =
      response.accepted_term < term_ || response.attempt < log_->progress().attempt;
  replica.is_due |= is_no_op && response.executed == log_->executed() && is_behind;
  Replicate(from);
  return true;
}

void LeaderState::OnContribution(int32_t from, ReplicaMessage contribution) {
  // replicated-W7a: contributions wait until it is known which versions there are.
  if (!aggregator_.is_open()) return early_.push_back({from, std::move(contribution)});
  ReplicaMessage ack{.kind = Kind::kContributionAck};
  ack.consumed = log_->consumed()[static_cast<size_t>(from)];
  if (geometry_->models().on()) ack.content = aggregator_.OnModel(from, contribution);
  // replicated-W7b: a contribution that a committed version has is not taken again.
  if (contribution.content.last > ack.consumed && !geometry_->models().on())
    ack.content = aggregator_.OnContribution(from, contribution);
  outbox_->Send(from, std::move(ack));
}

void LeaderState::TakeEarly() {
  for (QueuedMessage& contribution : std::exchange(early_, {}))
    OnContribution(contribution.to, std::move(contribution.message));
}

// Whether it has accepted what this leader has, or knows that this version is committed.
bool LeaderState::HasAccepted(int32_t replica) const {
  const Progress& mine = log_->progress();
  const Follower& other = followers_[static_cast<size_t>(replica)];
  if (replica == options_.self) return true;
  if (!other.is_known) return false;
  // replicated-W5: a replica that knows this version as committed counts as one that has it.
  if (other.progress.executed != mine.executed)
    return mine.has_entry && other.progress.executed > mine.executed;
  // replicated-W13: an entry of another attempt is another.
  if (other.progress.attempt != mine.attempt) return false;
  return other.progress.accepted_term == term_ && other.progress.has_entry == mine.has_entry;
}

void LeaderState::AdvanceCommit(const std::vector<bool>& lost, Time now) {
  const bool is_version = log_->uncommitted().has_value();
  if (!is_version && aggregator_.is_open() && !settlement_.IsSettling()) return;
  std::vector<bool> acceptors;
  for (int32_t i = 0; i < size_; ++i) acceptors.push_back(HasAccepted(i));
  // replicated-W5: a version is committed once a majority has accepted it. replicated-W7a:
  // collecting begins once a majority has accepted the no-op entry.
  const Half half = options_.witness->HalfOf(Witness::Question::kAccept, term_, log_->progress());
  if (!IsQuorum(acceptors, lost, half)) return AskWitness(acceptors, lost, now);
  if (is_version) {
    log_->Commit();
    vain_ = 0;
  }
  if (is_version && aggregator_.is_open()) aggregator_.OnCommitted();
  // A version that others have left is committed also by those that know it, and these may have
  // accepted the next of an earlier term: it is open once a majority has accepted the no-op entry.
  if (!is_version) {
    settlement_.OnAccepted();
    if (!aggregator_.is_open()) aggregator_.Open(*log_);
    TakeEarly();
  }
  for (Follower& replica : followers_) replica.is_due = true;
  for (int32_t i = 0; i < size_; ++i) Replicate(i);
}

bool LeaderState::LacksCommitted() const {
  return !log_->uncommitted().has_value() && log_->executed() < outbox_->known_committed();
}

Hearing LeaderState::HearingOf(const std::vector<bool>& lost, Time now) const {
  Hearing hearing{.lost = lost, .heard = {}, .able = {}};
  for (int32_t i = 0; i < size_; ++i) {
    const auto index = static_cast<size_t>(i);
    const Follower& replica = followers_[index];
    const bool is_there = replica.is_known && !lost[index];
    hearing.heard.push_back(is_there && SilenceOf(i, lost, now) <= options_.election_timeout);
    // A replica can make the next version if it has the last one, or is making that.
    const bool is_near = replica.progress.executed + 1 >= log_->executed();
    const bool answers = replica.answered >= replica.silent_until;
    // replicated-W12: the leader has a part in each sum, as it accepts whole ones alone; also
    // before it has answered its own first heartbeat.
    const bool is_in = replica.left_out_until <= now;
    hearing.able.push_back(i == options_.self || (is_there && is_near && answers && is_in));
  }
  return hearing;
}

// Until it answers a heartbeat that comes after: a slow one has then read what it was sent.
void LeaderState::LeaveOut(Follower* replica) { replica->silent_until = replica->heartbeats + 1; }

// Leaves out the members that the attempt waits for, and that are lost or silent for longer than
// `least`. Whether there is one.
bool LeaderState::LeaveOutSilent(const std::vector<bool>& lost, Time least, Time now) {
  bool is_any = false;
  for (int32_t i = 0; i < size_; ++i) {
    const auto index = static_cast<size_t>(i);
    if (!forming_->IsAwaited(i) || (!lost[index] && SilenceOf(i, lost, now) <= least)) continue;
    LeaveOut(&followers_[index]);
    is_any = true;
  }
  return is_any;
}

bool LeaderState::IsVain(const std::vector<bool>& lost, Time now, Time* until) {
  // replicated-W13: twice as patient after each vain attempt, or a slow network never makes one.
  const Time longest = options_.election_timeout << std::min(vain_, kMostDoublings);
  const Time over_at = aggregator_.WaitedAt(HearingOf(lost, now).heard, now);
  // replicated-W13: a rank that waits does so for max_wait, not for longer.
  const Time patience = over_at > now ? longest : longest / kHeard;
  *until = std::min(*until, over_at <= now ? kNever : over_at);
  // Without a piece it stalls, and with a silent member it is vain earlier.
  Time vain_after = forming_->moved_at() + patience;
  for (int32_t i = 0; i < size_; ++i) {
    if (!forming_->IsAwaited(i)) continue;
    const bool is_lost = lost[static_cast<size_t>(i)];
    vain_after = std::min(vain_after, is_lost ? 0 : now + patience - SilenceOf(i, lost, now));
  }
  is_over_ = false;
  if (now <= vain_after) {
    *until = std::min(*until, vain_after + 1);
    return false;
  }
  // replicated-W13: ranks of one host fall silent one after the other, and cost one attempt.
  if (LeaveOutSilent(lost, longest / kHeard, now))
    is_over_ = over_at <= now;
  else
    OnStall(longest, now);
  return true;
}

// No piece comes though all answer.
void LeaderState::OnStall(Time patience, Time now) {
  // replicated-W17: what others send goes by the leader.
  const Time hub_until = now + (kHubTimeouts * patience << std::min(stalled_, kMostDoublings));
  if (!forming_->has_hub()) ++stalled_;
  for (int32_t i = 0; i < size_; ++i) {
    Follower& replica = followers_[static_cast<size_t>(i)];
    if (i == options_.self || !forming_->IsAwaited(i)) continue;
    if (!forming_->IsByHub(i)) replica.by_hub_until = std::max(replica.by_hub_until, hub_until);
    // replicated-W19: a group of which no piece comes by the hub is not in the next attempt.
    else if (!forming_->IsBesideLeader(i))
      replica.left_out_until = now + patience;
  }
}

Time LeaderState::Advance(const std::vector<bool>& lost, Time now) {
  Time until = kNever;
  if (begun_at_ == 0) begun_at_ = now;
  if (forming_.has_value() && log_->uncommitted().has_value()) {
    if (!forming_->has_hub()) stalled_ = 0;
    forming_.reset();
    for (int32_t i = 0; i < size_; ++i) Replicate(i);
  }
  AdvanceCommit(lost, now);
  // replicated-W13: an attempt that waits for a silent member is abandoned; another one is made.
  if (forming_.has_value() && IsVain(lost, now, &until)) {
    forming_.reset();
    aggregator_.Abandon(is_over_);
    ++abandoned_;
    ++vain_;
  }
  const Hearing hearing = HearingOf(lost, now);
  if (aggregator_.is_open() && !forming_.has_value() && !log_->uncommitted().has_value())
    settlement_.Advance(lost, LacksCommitted(), &fired_);
  // replicated-W7c: a leader that lacks committed entries fires nothing: others have read them.
  // replicated-W29: nor is there a version after the last one.
  if (aggregator_.is_open() && !forming_.has_value() && !log_->uncommitted().has_value() &&
      log_->executed() < last_ && !LacksCommitted()) {
    std::optional<ReplicatedEntry> entry = aggregator_.Fire(hearing, now, &until);
    if (entry.has_value()) Propose(*std::move(entry), hearing, now);
  }
  FindDonor(hearing, now);
  settlement_.Look(lost);
  NoteNews(lost);
  SendHeartbeats(lost, now, &until);
  return until;
}

// To all that take part, this replica too.
void LeaderState::Propose(ReplicatedEntry entry, const Hearing& hearing, Time now) {
  entry.made = {term_, ++fired_};
  RoundRecord record;
  ReadRecord(*geometry_, entry.body.data(), &record);
  for (int32_t i = 0; i < size_; ++i) {
    const auto index = static_cast<size_t>(i);
    const uint64_t role = 1 + static_cast<uint64_t>(options_.hosts[index]);
    entry.roles.push_back(hearing.able[index] ? role : 0);
    if (i == options_.self || !hearing.able[index]) continue;
    const bool gives = record.contributions[index].count > 0;
    // replicated-W13: a silent member that gives nothing has no part.
    if (!gives && SilenceOf(i, hearing.lost, now) > options_.election_timeout / kHeard) {
      LeaveOut(&followers_[index]);
      entry.roles.back() = 0;
    } else if (now < followers_[index].by_hub_until) {
      entry.roles.back() |= kByHub;
      entry.hub = options_.self;
    }
  }
  forming_.emplace(*geometry_, entry, options_.self, options_.limits, now);
  for (int32_t i = 0; i < size_; ++i)
    if (entry.roles[static_cast<size_t>(i)] > 0) outbox_->Send(i, MessageOf(Kind::kPropose, entry));
}

// The next version that the replica has not, if others have it.
void LeaderState::Replicate(int32_t index) {
  Follower& replica = followers_[static_cast<size_t>(index)];
  if (index == options_.self || !replica.is_known) return;
  const Progress& at = replica.progress;
  // replicated-L1: one skip at a time to each replica.
  const bool is_gone = geometry_->models().on() && log_->Find(replica.skipped_to) == nullptr;
  if (at.executed < replica.skipped_to && !is_gone) return;
  const uint64_t next = at.executed + 1;
  const std::optional<ReplicatedEntry>& proposed = log_->uncommitted();
  if (next > log_->executed()) {
    const bool is_next = next == log_->executed() + 1 && proposed.has_value();
    if (is_next && !HasAccepted(index)) SendEntry(index, *proposed, false);
    return;
  }
  // replicated-W10: versions that the log has are sent one by one; a replica behind it skips.
  if (const ReplicatedEntry* entry = log_->Find(next)) {
    // The next heartbeat commits an entry accepted in this term, if it is the last version.
    if (HoldsEntry(at, *entry, term_) && next == log_->executed()) return;
    return SendEntry(index, *entry, true);
  }
  const ReplicatedEntry* last = log_->Find(log_->executed());
  // replicated-W20: models: what comes before the last version serves no rank that is behind.
  if (geometry_->models().on() && last != nullptr) {
    replica.skipped_to = log_->executed();
    return SendEntry(index, *last, true);
  }
  ReplicaMessage skip{.kind = Kind::kFastForward, .made = log_->made()};
  skip.list = log_->consumed();
  skip.missing = log_->missing();
  replica.skipped_to = log_->executed();
  skip.Pack(*geometry_);
  outbox_->Send(index, std::move(skip));
}

// Packed once for all that it goes to: entries that were made alike have the same bytes.
ReplicaMessage LeaderState::MessageOf(Kind kind, const ReplicatedEntry& entry) {
  if (packed_.version != entry.version || packed_.made != entry.made)
    packed_ = ReplicaMessage::Of(kind, entry, *geometry_);
  ReplicaMessage message = packed_;
  message.kind = kind;
  return message;
}

void LeaderState::SendEntry(int32_t index, const ReplicatedEntry& entry, bool is_committed) {
  Follower& replica = followers_[static_cast<size_t>(index)];
  const Told told{entry.version, entry.made, is_committed};
  // replicated-L1: once: it fetches what it lacks.
  if (replica.told == told) return;
  replica.told = told;
  ReplicaMessage message = MessageOf(Kind::kAppendEntry, entry);
  for (int32_t i = 0; i < size_; ++i) {
    const Progress& at = followers_[static_cast<size_t>(i)].progress;
    // replicated-W15: those that do not know yet that it is committed have it, too.
    const bool has_it = at.executed >= entry.version || HoldsEntry(at, entry, term_) ||
                        (!is_committed && HasAccepted(i));
    message.holders.push_back(i == options_.self || has_it);
  }
  outbox_->Send(index, std::move(message));
}

// One replica gets a snapshot at a time, from one that runs and has applied enough; another gives
// it when that takes too long.
void LeaderState::FindDonor(const Hearing& hearing, Time now) {
  const auto may_give = [&](int32_t i) {
    const auto index = static_cast<size_t>(i);
    return hearing.heard[index] && followers_[index].need == 0 &&
           followers_[index].applied >= followers_[static_cast<size_t>(recipient_)].need;
  };
  const auto needs = [&](int32_t i) {
    return i >= 0 && followers_[static_cast<size_t>(i)].need > 0;
  };
  const bool is_open = needs(recipient_) && now - donor_since_ <= options_.election_timeout;
  // replicated-W10: one donor at a time; another when it takes longer than election_timeout.
  if (is_open && donor_ >= 0 && may_give(donor_)) return;
  const int32_t last = std::max(donor_, 0);
  donor_ = -1;
  if (!is_open) {
    for (int32_t i = 1; i <= size_; ++i) {
      if (!needs((recipient_ + i) % size_)) continue;
      recipient_ = (recipient_ + i) % size_;
      donor_since_ = now;
      break;
    }
  }
  if (!needs(recipient_)) return;
  for (int32_t i = 1; i <= size_ && donor_ < 0; ++i)
    if (may_give((last + i) % size_)) donor_ = (last + i) % size_;
}

}  // namespace covey
