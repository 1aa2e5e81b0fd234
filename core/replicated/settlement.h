// A leader's part where members go on from finish() without others (replicated-W26): it settles the
// last version, and fires none before one of those that have gone on trains on.
//
//   state       event                                                      becomes
//   open        a member asks, no version is under way, none that          settling
//               has finished as often trains on, and of models the
//               last version is final
//   settling    a majority has accepted the no-op entry that says so       settled
//   settled     a member that has finished as often publishes, and         open
//               a version fires
//   any         the leader's term ends                                     what the next leader's
//                                                                          log says
//
// The settlement is the no-op entry for the next version, of an attempt of its own
// (replicated_log.h). So it is accepted, kept and found by a later leader, and by the witness, as
// an entry is. A member that asks goes on once it is accepted. Contributions of members that finish
// later are dropped then, at the leader first: no version that is under way has them.
//
// Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_SETTLEMENT_H_
#define COVEY_CORE_REPLICATED_SETTLEMENT_H_

#include <cstdint>
#include <vector>

#include "core/replicated/aggregator.h"
#include "core/replicated/outbox.h"
#include "core/replicated/replica_message.h"
#include "core/replicated/replicated_log.h"

namespace covey {

class Settlement {
 public:
  // The leader's own; all outlive it.
  struct Parts {
    ReplicatedLog* log;
    Aggregator* aggregator;
    Outbox* outbox;
  };

  Settlement(const RoundMemory& geometry, uint64_t term, const Parts& parts);

  void OnAppendResponse(int32_t member, const ReplicaMessage& response);
  // Settles the last version if a member asks for that, as the next of `attempts`. REQUIRES: no
  // version is under way. `lacks_committed`: the leader fires nothing, and settles nothing.
  void Advance(const std::vector<bool>& lost, bool lacks_committed, uint64_t* attempts);
  // A majority has accepted the leader's no-op entry.
  void OnAccepted() { is_accepted_ = true; }
  bool IsSettling() const { return parts_.log->settled() > 0 && !is_accepted_; }

  // Notes the facts that heartbeats tell of it.
  void Look(const std::vector<bool>& lost);
  void Tell(int32_t member, ReplicaMessage* heartbeat) const;
  // That changes.
  void AddNews(std::vector<uint64_t>* news) const;

 private:
  // A member, as it has told last.
  struct Member {
    MemberStatus status;
    uint64_t applied = 0, executed = 0, need = 0;
    uint64_t asks = 0;    // to go on, having finished so often
    uint64_t may_go = 0;  // the same, as it may
    bool has_left = false;
  };

  bool IsSettled() const { return parts_.log->settled() > 0 && is_accepted_; }
  bool HasAnyTrainedOn(uint64_t times, const std::vector<bool>& lost) const;
  bool IsAnyBehind(const std::vector<bool>& lost) const;
  void DropLate(const std::vector<bool>& lost);

  uint64_t term_;
  bool has_models_;
  uint64_t length_;  // of the log
  Parts parts_;
  std::vector<Member> members_;
  bool is_accepted_ = false;
  // It is settled, and no member that has gone on trains on; one of these is still there; a member
  // may need the state of another.
  bool has_ended_ = false, are_any_there_ = false, is_any_behind_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_SETTLEMENT_H_
