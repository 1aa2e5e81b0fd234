// The leader of a term (replicated-W4, replicated-W5, replicated-W7): it collects
// contributions, makes versions, and replicates each; a version is committed once a majority has
// accepted it.
//
//   state         until                                                       then
//   re-proposing  a majority has accepted the version that earlier terms      no-op
//                 have left, or knows it as committed; at once without one
//   no-op         a majority has accepted the no-op entry of this term        collecting
//   collecting    the next version may fire (Aggregator)                      proposing
//   proposing     a majority has accepted that version                        committed; collecting
//
// A leader that collects, and knows that more is committed than it has, lacks committed entries:
// those that live have voted for it, so only ranks that have left or died have them. It fires
// nothing: it would commit these versions again.
//
// To a replica at most one version and two heartbeats are under way that it has not answered: one
// that is stopped costs its peers nothing but these. Messages go in the order they are sent in;
// those to the leader's own replica too.
#ifndef COVEY_CORE_REPLICATED_LEADER_STATE_H_
#define COVEY_CORE_REPLICATED_LEADER_STATE_H_

#include <vector>

#include "core/replicated/aggregator.h"
#include "core/replicated/outbox.h"
#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"

namespace covey {

class LeaderState {
 public:
  struct Options {
    int32_t self = 0;
    Time election_timeout = 0;  // not heard of for so long, a replica is taken to be stopped
    Aggregator::Options aggregator;
  };

  // `log` is the replica's own, `outbox` where messages go; both outlive the leader state.
  LeaderState(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout,
              uint64_t term, ReplicatedLog* log, Outbox* outbox);
  // The first term: all agree on it, and nothing is left by others.
  void BeginFirst() { aggregator_.Open(*log_); }

  void OnAppendResponse(int32_t from, const ReplicaMessage& response, Time now);
  void OnContribution(int32_t from, ReplicaMessage contribution);
  // Returns when to come again at the latest.
  Time Advance(const std::vector<bool>& lost, Time now);

  void set_grace(Time grace) { aggregator_.set_grace(grace); }
  uint64_t fired() const { return fired_; }
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
  struct Follower {         // or the leader's own replica
    bool is_known = false;  // it has answered in this term
    Progress progress;
    Time heard_at = 0;
    uint64_t sent = 0;  // the version that is under way to it
    uint64_t heartbeats = 0, answered = 0;
    Time next_heartbeat = 0;
    bool is_due = true;  // there is news
    uint64_t last_heartbeat = 0;
    uint64_t applied = 0, need = 0, met = 0;
  };

  void AdvanceCommit(const std::vector<bool>& lost);
  bool LacksCommitted() const;
  uint64_t StatusOf(int32_t replica, const std::vector<bool>& lost);
  bool HasAccepted(int32_t replica) const;
  void Replicate(int32_t replica);
  void SendEntry(int32_t replica, const ReplicatedEntry& entry);
  void SendHeartbeats(const std::vector<bool>& lost, Time now, Time* until);
  void NoteNews(const std::vector<bool>& lost);
  void TakeEarly();
  void FindDonor(const std::vector<bool>& lost, const std::vector<bool>& heard, Time now);

  Options options_;
  int32_t size_;
  uint64_t term_;
  ReplicatedLog* log_;
  Outbox* outbox_;
  Aggregator aggregator_;
  std::vector<Follower> followers_;
  // Contributions that came before the aggregator was open, with their senders.
  std::vector<QueuedMessage> early_;
  std::vector<uint64_t> news_;
  int32_t recipient_ = -1, donor_ = -1;  // the receiver and the sender of a snapshot
  Time donor_since_ = 0;
  Time begun_at_ = 0;
  uint64_t fired_ = 0;
  bool has_begun_leave_ = false;
  uint64_t last_executed_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_LEADER_STATE_H_
