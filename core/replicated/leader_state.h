// The leader of a term (replicated-W4, replicated-W5, replicated-W7): it collects arrivals, decides
// what is in a version, and proposes that; all that it hears of make the sum (formation.h). A
// version is committed once a majority has accepted it, the leader among them.
//
//   state         until                                                       then
//   re-proposing  a majority has accepted the version that earlier terms      no-op
//                 have left, or knows it as committed; at once without one
//   no-op         a majority has accepted the no-op entry of this term        collecting
//   collecting    the next version may fire (Aggregator)                      forming
//   collecting    a member goes on without others (settlement.h)              collecting
//   forming       its whole sum is here; of models also one of each group     proposing
//                 whose models it has, there
//   forming       a member that has a part in it is lost, or silent for too   abandoned; collecting
//                 long, or no piece of it has come for too long; half as
//                 long once a rank has waited for max_wait
//   proposing     a majority has accepted that version                        committed; collecting
//
// An abandoned attempt is followed by another at the same version, without that member and those
// that are nearly as silent, and with twice the patience. A member that is slow is waited for
// while anything comes from it. Where all answer and no piece comes, two of the others may have
// no link: for a while those that make such a sum are by the hub, which is the leader
// (formation.h). Each such attempt without a hub doubles that while. So is a member that answers
// again for which an attempt was vain: for as long as it was silent. A silent member that gives
// nothing has no part in the next attempt.
//
// The witness (witness.h) is asked for its acceptance once half of the replicas have accepted, and
// the others have not for election_timeout; then at once, until more than half are near again.
//
// A leader that collects, and knows that more is committed than it has, lacks committed entries:
// those that live have voted for it, so only ranks that have left or died have them. It fires
// nothing: it would commit these versions again.
//
// A replica is told of each entry that it lacks once, and once more when that is committed; two
// heartbeats at most are under way that it has not answered: one that is stopped costs its peers
// little. Messages go in the order they are sent in;
// those to the leader's own replica too.
#ifndef COVEY_CORE_REPLICATED_LEADER_STATE_H_
#define COVEY_CORE_REPLICATED_LEADER_STATE_H_

#include <optional>
#include <vector>

#include "core/replicated/aggregator.h"
#include "core/replicated/attempt.h"
#include "core/replicated/outbox.h"
#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"
#include "core/replicated/settlement.h"
#include "core/replicated/shard_plan.h"
#include "core/replicated/witness.h"

namespace covey {

class LeaderState {
 public:
  struct Options {
    int32_t self = 0;
    Time election_timeout = 0;  // not heard of for so long, a replica is taken to be stopped
    AdmissionRule admission;
    const Kernels* kernels = nullptr;
    std::vector<int32_t> hosts;  // by member: a number of its host
    ShardLimits limits;
    Witness* witness = nullptr;  // the replica's own
  };

  // `log` is the replica's own, `outbox` where messages go; both outlive the leader state.
  // `geometry`: of results; outlives it too.
  LeaderState(const Options& options, const RoundMemory::Shape& shape, const RoundMemory* geometry,
              uint64_t term, ReplicatedLog* log, Outbox* outbox);
  // The first term: all agree on it, and nothing is left by others.
  void BeginFirst() { aggregator_.Open(*log_); }

  // Any message has come.
  void OnHeard(int32_t from, Time now) { followers_[static_cast<size_t>(from)].heard_at = now; }
  // Models: no version is made after that one.
  void EndWith(uint64_t version) { last_ = version; }
  // The leader's own replica has its sum of the attempt. Whether it may accept that: of models,
  // once each group that is in it has a member with its mean (replicated-W19).
  void OnOwnWhole() {
    if (forming_.has_value()) forming_->OnMade(options_.self, forming_->moved_at());
  }
  bool MayAccept() const { return !forming_.has_value() || forming_->IsMade(); }
  // Acceptors of the attempt before this leader, by member.
  std::vector<bool> Makers() const;
  // A piece of that attempt has come.
  void OnPiece(const Origin& made, Time now);
  // False: this leader's term is over.
  bool OnAppendResponse(int32_t from, const ReplicaMessage& response);
  void OnContribution(int32_t from, ReplicaMessage contribution);
  // Returns when to come again at the latest.
  Time Advance(const std::vector<bool>& lost, Time now);

  void set_grace(Time grace) { aggregator_.set_grace(grace); }
  uint64_t fired() const { return fired_; }
  uint64_t abandoned() const { return abandoned_; }
  bool IsForming() const { return forming_.has_value(); }
  // How long the replica was not heard of; 0: the leader's own, and those that are dead.
  Time SilenceOf(int32_t replica, const std::vector<bool>& lost, Time now) const;
  // Its replica leaves: all are to have the versions committed now, and to answer one more
  // heartbeat.
  void BeginLeave();
  bool has_begun_leave() const { return has_begun_leave_; }
  // Those have that were heard of, or not yet listened to for so long.
  bool AreAllTold(const std::vector<bool>& lost, Time listens_since, Time now) const;

 private:
  using Kind = ReplicaMessage::Kind;
  // The entry that a replica was told of last.
  struct Told {
    uint64_t version = 0;
    Origin made;
    bool is_committed = false;

    bool operator==(const Told&) const = default;
  };
  struct Follower {         // or the leader's own replica
    bool is_known = false;  // it has answered in this term
    Progress progress;
    Time heard_at = 0;
    uint64_t silent_until = 0;  // the heartbeat it is to answer: an attempt was vain for it
    uint64_t skipped_to = 0;    // it was told to
    Told told;
    uint64_t heartbeats = 0, answered = 0;
    Time next_heartbeat = 0;
    bool is_due = true;  // there is news
    uint64_t last_heartbeat = 0;
    uint64_t applied = 0, need = 0, met = 0;
    Time by_hub_until = 0;    // its links to others may be cut
    Time left_out_until = 0;  // it got no piece though all answered, by the hub too
  };

  // The progress that only half of the replicas have accepted, since when, and whether the leader
  // asks the witness at once.
  struct Halved {
    Progress accepted = {};
    Time since = 0;
    bool asks = false;
  };

  void AdvanceCommit(const std::vector<bool>& lost, Time now);
  void AskWitness(const std::vector<bool>& acceptors, const std::vector<bool>& lost, Time now);
  bool LacksCommitted() const;
  uint64_t StatusOf(int32_t replica, const std::vector<bool>& lost);
  bool HasAccepted(int32_t replica) const;
  Hearing HearingOf(const std::vector<bool>& lost, Time now) const;
  bool IsVain(const std::vector<bool>& lost, Time now, Time* until);
  bool LeaveOutSilent(const std::vector<bool>& lost, Time least, Time now);
  void LeaveOut(Follower* replica);
  void OnStall(Time patience, Time now);
  bool HasMade(int32_t replica) const;
  void NoteAttempt(int32_t from, const ReplicaMessage& response);
  void Propose(ReplicatedEntry entry, const Hearing& hearing, Time now);
  void Replicate(int32_t replica);
  ReplicaMessage MessageOf(Kind kind, const ReplicatedEntry& entry);
  void SendEntry(int32_t replica, const ReplicatedEntry& entry, bool is_committed);
  void SendHeartbeats(const std::vector<bool>& lost, Time now, Time* until);
  Slice MemberStates(const std::vector<bool>& lost, Time now);
  void NoteNews(const std::vector<bool>& lost);
  void TakeEarly();
  void FindDonor(const Hearing& hearing, Time now);

  Options options_;
  int32_t size_;
  const RoundMemory* geometry_;
  uint64_t term_;
  ReplicatedLog* log_;
  Outbox* outbox_;
  Aggregator aggregator_;
  Settlement settlement_;
  std::vector<Follower> followers_;
  // Contributions that came before the aggregator was open, with their senders.
  std::vector<QueuedMessage> early_;
  std::vector<uint64_t> news_;
  ReplicaMessage packed_;                // with the entry that was sent last
  int32_t recipient_ = -1, donor_ = -1;  // the receiver and the sender of a snapshot
  Time donor_since_ = 0;
  Time begun_at_ = 0;
  uint64_t fired_ = 0;  // attempts, and settlements
  uint64_t abandoned_ = 0;
  int vain_ = 0;                    // of those, since a version was committed
  bool is_over_ = false;            // for one of them max_wait was, and a member was silent
  std::optional<Attempt> forming_;  // the attempt under way
  int stalled_ = 0;                 // attempts without a hub, since one came to a version
  Halved halved_;
  bool has_begun_leave_ = false;
  uint64_t last_executed_ = 0;
  uint64_t last_ = ~uint64_t{0};  // no version is made after it
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_LEADER_STATE_H_
