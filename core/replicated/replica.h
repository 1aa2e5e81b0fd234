// One rank's replica of the versions of one bundle, where ranks share no memory: what Rounds
// (core/partial/rounds.h) is on one host.
//
// A job has one replica for each rank, and one of them leads. A rank publishes to its own replica,
// which keeps each contribution until a committed version has it (pending_contributions.h) and
// tells the leader of it. The leader decides what is in a version by the same rules as one host
// (aggregator.h), and all that it hears of make the sum together (formation.h). A replica accepts a
// version that it has whole; once a majority has, it is committed (leader_state.h,
// replicated_log.h). Then all can read it, and only then.
//
// A replica that has not heard of its leader for election_timeout, the lowest first, asks whether a
// majority does not hear it either, and then requests votes for the next term; a replica that
// grants one takes no message of an earlier term. A majority says its accepted version: a version
// that may have been committed is committed again, the same bytes.
//
//   replica        event                                           becomes
//   follower       silence of its leader for ElectionTimeout       pre-candidate, if it heard any
//   pre-candidate  message of its leader                           follower
//   pre-candidate  pre-votes of a majority                         candidate: term + 1, own vote
//   pre-candidate  others hear the leader, it does not: for long   candidate: term + 1, own vote
//   candidate      votes of a majority                             leader
//   candidate      silence, but a replica was heard                pre-candidate
//   any            message of a later term                         follower; learns its leader
//   not a leader   kRequestPreVote, up to date; hears no leader    itself; answers
//   follower       kRequestVote of its term, up to date            votes, once for each term
//   any            LeaveGracefully, others know what it knows      departed: kLeave to all, silence
//
// A replica that has departed is as dead, but its trainer has read what it told in its kLeave. A
// leader that knows of versions that only such ranks have lacks committed entries (leader_state.h),
// and so does a follower of it.
//
// Invariants, whichever replicas stop or die, anywhere and for any time:
//  1. A version is committed once: no two replicas read different ones, also when all that have
//     read one have left.
//  2. A step of a rank is in one version at most, and in its replica until it is in one.
//  3. With a majority that runs (quorum.h) and can hear each other, versions go on. Without one
//     the others' state is unknown, so all wait: for longer than max_wait, too.
//  4. A rank that lacks committed entries is told so, and has finished with no other: Lacking.
//  5. Where ranks have gone on from finish() without others, no version follows before one of them
//     trains on (settlement.h).
//
// Each replica belongs to one process, whose engine runs it while the trainer computes. Sans-IO:
// messages and time come as arguments, messages go by TakeMessages. One thread at a time.
#ifndef COVEY_CORE_REPLICATED_REPLICA_H_
#define COVEY_CORE_REPLICATED_REPLICA_H_

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/partial/merge.h"
#include "core/partial/versions.h"
#include "core/replicated/contributions.h"
#include "core/replicated/formations.h"
#include "core/replicated/going_on.h"
#include "core/replicated/leader_state.h"
#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"
#include "core/replicated/witness.h"

namespace covey {

class Replica final : public Versions, public EpochEnd {
 public:
  struct Options {
    int32_t self = 0;
    AdmissionRule admission;
    Time max_wait = kNever;
    bool skips_ahead = false;
    bool average = false;
    Time election_timeout = kSecond;
    const Kernels* kernels = nullptr;
    std::vector<int32_t> hosts;  // by member: a number of its host
    ShardLimits limits;
    bool has_witness = false;  // one that all of them reach: equal on all
  };

  // Equal on all ranks but for `self` and `max_wait` (partial-W1).
  Replica(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout);

  // ---- Of the trainer: see Versions.
  std::byte* open() const override { return pending_.open(); }
  uint64_t Publish(std::span<const double> hypers) override;
  uint64_t Skip() override;
  uint64_t step() const override { return step_; }
  uint64_t next_step() const override;
  void set_max_wait(Time max_wait) override { max_wait_ = max_wait; }
  void set_grace(Time grace) override;
  uint64_t executed() override { return log_.executed(); }
  Found Read(uint64_t version, std::span<void* const> to, RoundRecord* record) override;
  // Models: see Rounds. A mean that this replica could not get is absent: the own model stands.
  // Where no version is executed the own model stands too. REQUIRES (Merge): this rank has
  // published.
  void Merge(uint64_t version, std::span<void* const> to, Merged* merged);
  void Begin();
  uint64_t OfferAgain(std::span<const double> hypers);
  // The model that was published last; null: none.
  const Contributions::Pending* published() const { return pending_.model(); }
  void EndWith(uint64_t version) override;
  // Gradients. *content: that of this rank which no version has, nor will have; null: nothing.
  // False: versions may still have it.
  bool Withdraw(const std::byte** content);
  // Between two steps; and that it does: nothing happens if it is not asked any more.
  bool IsAsked(uint64_t applied, Time now) override;
  bool IsAnyInNeed() const override;
  void Give(uint64_t applied, Bytes state);
  // It has fallen out of the log (kGone): asks for a state from which the log leads on. True: that
  // is *snapshot now, and is_overdue as if it had been waited for in vain.
  struct Snapshot {
    int32_t from = -1;
    uint64_t version = 0;
    Slice state;
  };
  bool RequestSnapshot(Snapshot* snapshot);
  EpochEnd& epoch_end() override { return *this; }
  Donors FindDonors() override;
  void Finish() override;
  bool IsFlushed() override;
  Lack Lacking() override;
  bool HasGivenUp() const override {
    return tries_ > 0 && (heartbeat_.over == tries_ || over_alone_ == tries_);
  }
  std::vector<int32_t> Unfinished() override;
  void GoOn() override;
  bool GoOnWithout() override;
  bool IsLeftBehind() override { return going_on_.IsLeftBehind(IsBehind()); }
  uint64_t dropped() const override { return going_on_.dropped(); }
  // The last version is settled, as this replica knows it; see Settlement.
  bool IsSettled() const;
  void Meet() override;
  std::vector<int32_t> Unmet() override;
  void Leave() override;
  bool HaveAllLeft() override;
  // Its process leaves, after Leave(). The replica departs once those that it hears of have what
  // only it knows, and what it has published counts if it moves; at `latest` in any case. A replica
  // that was silent for some times election_timeout, while this one listened, is not waited for.
  void LeaveGracefully(Time latest);
  bool has_departed() const { return has_departed_; }
  // It leads, and a version is under way.
  bool IsBusy() const {
    return leader_state_ != nullptr &&
           (log_.uncommitted().has_value() || leader_state_->IsForming());
  }

  // The silent members that the quorum lacks, and for how long. Empty: there is one.
  struct Silence {
    int32_t member = -1;
    Time since = 0;
  };
  std::vector<Silence> MissingForQuorum(Time now) const;

  // ---- Of the network: whole messages, in order for each pair. Advance after the last that has
  // come; it returns when to come again at the latest.
  void OnMessage(int32_t from, Slice bytes, Time now);
  // Of what may come now: known from the beginning, but for the state of a trainer, which only a
  // replica that needs one takes, of whatever length.
  size_t LongestMessageBytes() const;
  // `member` is dead, and all that it has sent was given to OnMessage before.
  void OnLoss(int32_t member) override {
    lost_[static_cast<size_t>(member)] = true;
    formations_.OnLoss(member);
    elections_ = 0;  // the replica it has waited for in vain was not slow
  }
  Time Advance(Time now);
  // The same with the witness, whose messages go another way: after each of these Advance.
  std::optional<WitnessRequest> TakeWitnessRequest();
  void OnWitness(const WitnessAnswer& answer, Time now);
  // For how long the witness has not answered; 0: it has no question to answer.
  Time WitnessSilence(Time now) const {
    return witness_.waits_since() > 0 ? now - witness_.waits_since() : 0;
  }
  // Versions that this leader goes on without: only ranks had them that are dead.
  const Lack& lost_versions() const { return lost_versions_; }
  // Messages to send, in this order.
  std::vector<EncodedMessage> TakeMessages();

  // For checkers.
  const ReplicatedLog& log() const { return log_; }
  const Contributions& pending() const { return pending_; }
  bool leads() const { return leader_state_ != nullptr; }
  uint64_t term() const { return term_; }
  // Versions that it had from an earlier term when it came to lead.
  uint64_t adopted() const { return adopted_; }
  uint64_t fired() const {
    return fired_ + (leader_state_ != nullptr ? leader_state_->fired() : 0);
  }
  // Attempts that it has given up as the leader.
  uint64_t abandoned() const {
    return abandoned_ + (leader_state_ != nullptr ? leader_state_->abandoned() : 0);
  }

 private:
  using Kind = ReplicaMessage::Kind;
  enum class Standing : uint8_t { kFollower, kPreCandidate, kCandidate };
  // The leader's last one.
  struct Heartbeat {
    uint64_t term = 0, executed = 0, number = 0, over = 0;
    bool quiet = false, lacks_committed = false;
    uint64_t settled = 0, goes_on = 0;
    bool has_ended = false, are_any_there = false, is_any_behind = false;
    std::vector<uint64_t> statuses;
    uint64_t snapshot_to = 0, snapshot_version = 0;
    std::vector<uint64_t> needs, mets, silences;
  };

  void CountFromLast();
  const ReplicatedEntry& EntryFor(uint64_t version, uint64_t step) const;
  void KeepOwn(std::span<void* const> to, Merged* merged);
  void NoteBase(const Merged& merged, std::span<void* const> to);
  uint64_t Arrive();
  bool HasLeft(int32_t member) const;
  bool HasFinished(int32_t member) const;
  bool LacksCommitted() const;
  bool MayLeave() const;
  bool IsBehind() const;
  bool IsNamed(uint64_t applied) const;
  void GiveKept();
  void Send(const GoingOn::State& state);
  bool HearsOfOthers() const;
  bool IsLedAsFar() const;
  void FinishLeave();
  void TimeFinish(Time now);
  bool IsGone(int32_t member) const;
  bool AreAllInNeed(const Heartbeat& heartbeat) const;
  bool HearsAnotherHost(const Heartbeat& heartbeat) const;
  bool IsOnThisHost(int32_t member) const {
    const std::vector<int32_t>& hosts = options_.hosts;
    return hosts[static_cast<size_t>(member)] == hosts[static_cast<size_t>(options_.self)];
  }
  bool IsSound(const ReplicaMessage& message) const;
  void Handle(int32_t from, ReplicaMessage message, Time now);
  void NoteCut(int32_t from, Time now);
  void Relay(int32_t from, ReplicaMessage piece);
  void OnHeartbeat(ReplicaMessage heartbeat);
  void AcceptNoOp(const ReplicaMessage& heartbeat);
  void OnLeave(int32_t from, const ReplicaMessage& leave);
  void OnAppendEntry(ReplicaMessage entry, Time now);
  void OnSnapshot(int32_t from, ReplicaMessage snapshot);
  bool IsUpToDate(const ReplicaMessage& request) const;
  bool HearsLeader() const;
  void OnRequestPreVote(int32_t from, const ReplicaMessage& request);
  void OnRequestVote(int32_t from, const ReplicaMessage& request);
  void OnVote(int32_t from, Standing standing);
  void Follow(uint64_t term);
  void LearnLeader(int32_t from, Time now);
  void CommitKnown();
  void AcceptWhole();
  void RequestVotes(Standing standing);
  void StartElection();
  void Canvass();
  void EndCanvass();
  void AdvanceElection();
  bool HaveVotes(Witness::Question question, uint64_t term);
  void NoteLost(const WitnessRecord& record);
  void GoOnWithoutTheDead(Half half);
  void ForgetLost(uint64_t after, uint64_t before);
  std::vector<int32_t> Lost() const;
  bool IsCommitUnknown() const;
  void NoteKnown(const ReplicaMessage& message);
  void BecomeLeader();
  void SendAppendResponse(int32_t to);
  void SendContributions();
  void NoteCommitted();
  bool Drain(Time now);
  Time ElectionTimeout() const;

  Options options_;
  RoundMemory::Shape shape_;
  RoundLayout layout_;
  RoundMemory geometry_;  // not mapped: where things lie in a result
  size_t longest_bytes_;
  ReplicatedLog log_;
  std::unique_ptr<Contributions> contributions_;
  Contributions& pending_;
  KnownCommitted known_;
  Outbox outbox_{&term_, &known_, &log_};
  Formations formations_;
  std::deque<QueuedMessage> local_;  // to this replica itself
  std::vector<EncodedMessage> encoded_;

  uint64_t term_ = 1;
  int32_t leader_ = 0;  // -1: not known yet
  int32_t voted_for_ = 0;
  Standing standing_ = Standing::kFollower;  // kFollower also: it leads
  std::vector<bool> votes_;
  std::unique_ptr<LeaderState> leader_state_;
  uint64_t fired_ = 0, abandoned_ = 0;  // in earlier terms
  uint64_t adopted_ = 0;
  std::vector<bool> lost_;
  Time silent_ = 0, looked_at_ = 0;
  Time listens_since_ = 0;     // without having been stopped itself
  int canvasses_ = 0;          // in vain, since it heard of its leader
  int deposed_ = 0;            // by a later term, as often as it has led
  int elections_ = 0;          // that it has begun since a version was committed,
  uint64_t elections_at_ = 0;  // which was the last
  bool has_heard_ = true;      // any replica, since its last election
  std::vector<Time> heard_at_;
  Time heard_host_at_ = 0;  // when it heard another host last; 0: never
  Time cut_until_ = 0;      // its links may be slow until then
  Time led_at_ = 0;         // when it heard of a leader last
  Witness witness_;
  Progress elected_with_;  // when it came to lead
  Lack lost_versions_;
  uint64_t left_with_ = 0;  // the last version that a rank has read which has left

  uint64_t step_ = 0, read_ = 0, member_status_ = 0, tries_ = 0;
  Time alone_since_ = 0;     // in finish(), without a quorum; 0: not
  uint64_t over_alone_ = 0;  // the try for which max_wait is over since then
  uint64_t told_status_ = 0;
  uint64_t need_ = 0;             // see ReplicaMessage::need
  uint64_t given_heartbeat_ = 0;  // that asked for its last answer
  Snapshot snapshot_;             // of version 0: none
  int all_in_need_ = 0;           // heartbeats running that have told so
  uint64_t met_ = 0;
  bool is_overdue_ = false, has_left_ = false, has_departed_ = false;
  Time leaves_by_ = kNever;
  Time moved_at_ = 0;  // when a version was committed last, or it was to leave
  Time max_wait_;
  Heartbeat heartbeat_;
  GoingOn going_on_;
  // Models: see core/partial/merge.h.
  uint64_t last_ = ~uint64_t{0};    // no version is made after it
  bool has_parted_ = false;         // its trainer has gone on from that, and gives no snapshot
  uint64_t flushed_ = 0;            // the one that its last finish() ended with
  std::vector<std::byte> base_;     // what its work began from; empty: not known
  std::vector<std::byte> offered_;  // its progress that it has offered,
  uint64_t offered_step_ = 0;       // as this step; 0: none since its last merge
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_REPLICA_H_
