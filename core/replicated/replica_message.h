// The messages of replicas, as data and as bytes.
//
//   message           from, to            says
//   kRequestPreVote   replica, all        would you vote for me? As kRequestVote, before its term
//   kPreVoteGranted   replica, replica    yes; it binds neither
//   kRequestVote      candidate, all      may I lead this term? I know `executed`, and accepted
//                                         `version` in `accepted_term`
//   kVoteGranted      replica, candidate  yes, and no other replica
//   kHeartbeat        leader, replica     I lead; so many versions are committed; member states
//   kAppendResponse   replica, leader     what it knows and has accepted, and its trainer's state;
//                                         answers kHeartbeat, kAppendEntry, and comes unasked
//   kContribution     replica, leader     I hold a contribution (Raft: a client's command)
//   kContributionAck  leader, replica     that lies here as one; up to `consumed` it is in versions
//   kPropose          leader, replica     a version: make its sum with the others, and accept it
//   kPiece            replica, replica    a shard of such a sum, as far as it is made
//   kRelay            replica, hub        a piece for the member `relay`: hand it on, as kPiece
//   kAppendEntry      leader, replica     a version that is made: fetch its sum of its holders, and
//                                         accept it; committed when version <= executed
//   kFetch            replica, holder     send me that shard of its sum
//   kFastForward      leader, replica     you are behind the log: go on after version `executed`
//   kSnapshot         replica, replica    my trainer's state after `version`, for its requester
//   kLeave            replica, all        I leave: I hear and say nothing more
//
// A message of a term that is over is dropped, but for kSnapshot, kLeave, kPiece, kRelay, kFetch
// and `known_committed`; its writer is told which one runs (replicated-W7). All fields of all kinds
// stand in one struct: messages are few and small but for `body`, which is not copied.
//
// A leader tells every member of every member, so words of members are packed (packed_words.h): a
// message in which they are alike is as long for any number of them. Its writer packs them once,
// and messages to several members hold the same bytes. Each message is whole: what its reader has
// missed before does not matter.
#ifndef COVEY_CORE_REPLICATED_REPLICA_MESSAGE_H_
#define COVEY_CORE_REPLICATED_REPLICA_MESSAGE_H_

#include <span>
#include <vector>

#include "core/base/counted_bytes.h"
#include "core/base/types.h"
#include "core/partial/memory.h"
#include "core/replicated/replicated_log.h"
#include "core/replicated/shard_plan.h"

namespace covey {

// The member status (core/partial/memory.h) of a replica that has left or is dead: it has finished
// for good.
inline constexpr uint64_t kHasLeft = (uint64_t{1} << 62) + 1;

struct ReplicaMessage {
  enum class Kind : uint8_t {
    kRequestVote = 1,
    kVoteGranted,
    kHeartbeat,
    kAppendResponse,
    kContribution,
    kContributionAck,
    kAppendEntry,
    kFastForward,
    kSnapshot,
    kLeave,
    kPropose,
    kPiece,
    kFetch,
    kRequestPreVote,
    kPreVoteGranted,
    kRelay,
  };

  Kind kind = Kind::kAppendResponse;
  uint64_t term = 0;
  uint64_t executed = 0;         // versions that are committed, as the writer has them;
  uint64_t known_committed = 0;  // as any replica has told it, whether or not it has them;
  Origin known_made;             // and the origin of the last of these
  // kPropose, kAppendEntry, kPiece, kRelay, kFetch: which; kRequestVote, kRequestPreVote,
  // kAppendResponse: the accepted, uncommitted one; 0: none.
  uint64_t version = 0;
  // Of that version. kHeartbeat: what is after `version`, and was made in an earlier term, is lost
  // with the dead (replicated-W25).
  Origin made;
  // kRequestVote, kRequestPreVote, kAppendResponse: the term in which what the writer has accepted
  // was proposed, and the attempt (Progress). kHeartbeat: the attempt of the no-op entry. kLeave:
  // both, of a no-op entry that says what is settled.
  uint64_t accepted_term = 0, attempt = 0;
  // kPiece, kRelay, kFetch: the shard, and where it lies in a sum.
  ShardStage stage = ShardStage::kNone;
  uint64_t shard = 0, offset_bytes = 0, length_bytes = 0;
  uint64_t relay = 0;  // kRelay: 1 + the member it is for; kPiece: 1 + that it is of; 0: its writer
  uint64_t number = 0;  // of heartbeats; kAppendResponse: of the last one that has come

  // kAppendResponse: the state of its trainer.
  uint64_t member_status = 0, applied = 0, tries = 0;
  Time max_wait = kNever;
  bool left = false;
  uint64_t met = 0;   // how often it has met the others after finishing
  uint64_t need = 0;  // the lowest version of which a snapshot would do; 0: it needs none
  uint64_t cut = 0;   // for how long yet its links may be slow to come back, in nanoseconds

  // For settling (settlement.h); these take no bytes where all are 0.
  uint64_t settled = 0;  // kHeartbeat, kLeave: ReplicatedLog::settled of the no-op entry
  // kAppendResponse: its rank, which has finished so often, wants to go on without others;
  // kHeartbeat: it may.
  uint64_t goes_on = 0;
  uint64_t dropped = 0;  // kContributionAck: up to that step all that is in no version is dropped
  // kHeartbeat: see Settlement::Look.
  bool has_ended = false, are_any_there = false, is_any_behind = false;

  // kHeartbeat: no version is under way and no slot published; the receiver has waited for max_wait
  // since the try of its finish() of that number; the uncommitted entry is a no-op.
  bool quiet = false;
  uint64_t over = 0;
  bool is_no_op = false;
  // No live replica has the versions committed beyond `executed`: none comes any more.
  bool lacks_committed = false;
  // 1 + the replica that it may give a snapshot, from that version on.
  uint64_t snapshot_to = 0, snapshot_version = 0;
  // By member: whether it needs a snapshot, how often it has met the others, and for how long the
  // leader has not heard of it, in nanoseconds; 0 for the leader, for dead members, and up to
  // election_timeout.
  std::vector<uint64_t> needs, mets, silences;

  Contribution content;   // kContribution, kContributionAck
  uint64_t consumed = 0;  // kContributionAck
  // kHeartbeat: member statuses; kPropose, kAppendEntry, kFastForward: the last step that is in a
  // version.
  std::vector<uint64_t> list;
  std::vector<uint64_t> missing;  // with the last steps: Suspicion::missing, by member
  std::vector<uint64_t> roles;    // kPropose, kAppendEntry: ReplicatedEntry::roles,
  uint64_t hub = 0;               // and 1 + ReplicatedEntry::hub
  std::vector<bool> holders;      // kAppendEntry: by member: it has the sum
  std::vector<double> hypers;     // kContribution
  // kPropose, kAppendEntry: the record; kPiece, kRelay: the shard; kSnapshot: the state. It begins
  // where elements of any type may.
  Slice body;

  // A packed message with an entry, of whose body the record alone; and the entry of an unpacked
  // one.
  static ReplicaMessage Of(Kind kind, const ReplicatedEntry& entry, const RoundMemory& geometry);
  ReplicatedEntry TakeEntry();

  // The lists of kHeartbeat and kFastForward, and what Of has, become the body: once, before it is
  // sent. Nothing for other kinds.
  void Pack(const RoundMemory& geometry);
  // The opposite, once, before it is read. False: they are not as was agreed.
  bool Unpack(const RoundMemory& geometry);

  // The lengths, at most: of all before the body, and of what is packed.
  static size_t MostHeadBytes(const RoundMemory& geometry);
  static size_t MostPackedBytes(const RoundMemory& geometry);

  // All before the body; and both. REQUIRES: it is packed.
  Bytes EncodeHead() const;
  Bytes Encode() const;
  // False: it is none. The body is a part of `bytes`, packed.
  static bool Decode(Slice bytes, ReplicaMessage* message);

 private:
  bool HasEntry() const { return kind == Kind::kPropose || kind == Kind::kAppendEntry; }
  bool TellsOfSettling() const { return settled > 0 || goes_on > 0 || dropped > 0; }
  std::vector<std::vector<uint64_t>*> Packed();
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_REPLICA_MESSAGE_H_
