// The coordinator's half of negotiation (agree-N2): collects announcements of one occurrence from
// every member of a group and answers all of them alike, AGREED or one ERROR that names ranks and
// both values.
//
// Sans-IO: messages and time in, envelopes out. Every rank has one; it serves the groups whose
// lowest rank it is. It holds no cache: members keep the entries, and announce only what they
// cannot match.
//
// Invariants:
//  1. An occurrence is pending from its first announcement until all members announced it, then
//     forgotten.
//  2. Members receive answers of one stream in the order of its occurrences.
//
// It also plans bundles (planner.h) and collects the joined ranks (agree-N10, join.h).
#ifndef COVEY_CORE_AGREE_COORDINATOR_H_
#define COVEY_CORE_AGREE_COORDINATOR_H_

#include <map>
#include <optional>
#include <vector>

#include "core/agree/message.h"
#include "core/agree/planner.h"
#include "core/agree/retire.h"

namespace covey {

class Coordinator {
 public:
  struct Options {
    // An occurrence pending this long is reported as kMissing to all members, and again after each
    // further interval; 0 = never.
    Time stall_warning = 0;
    FusionRules fusion;
    size_t segment_bytes = 0;
    int32_t world_size = 1;
  };
  explicit Coordinator(const Options& options)
      : options_(options), planner_(options.fusion, options.segment_bytes) {}

  void OnAnnounce(Rank from, Message message, Time now, std::vector<Envelope>* outbox);
  void OnFrozen(Rank from, const Message& message, std::vector<Envelope>* outbox) {
    planner_.OnFrozen(from, message, outbox);
  }
  void OnJoin(Rank from, std::vector<Envelope>* outbox);
  // Asks whether what is idle here is so on all members (retire.h).
  void Retire(Message idle, std::vector<Envelope>* outbox);
  void OnIdle(Rank from, const Message& answer, std::vector<Envelope>* outbox);
  void OnDropped(Rank from, const Message& message, std::vector<Envelope>* outbox);
  // A member asks for the ranks that have not announced it: only the asker is answered, and none
  // once all have.
  void OnWho(Rank from, const OperationId& id, Time now, std::vector<Envelope>* outbox) const;
  void OnTick(Time now, std::vector<Envelope>* outbox);
  // Pending occurrences of groups with this member are dropped, now and when announced later: their
  // members learn of the loss themselves.
  void OnLoss(Rank lost);

  Time NextDeadline() const;

 private:
  struct Pending {
    std::vector<int32_t> members;
    std::vector<std::optional<Message>> announced;  // by group index
    Time begun_at = 0;
    Time next_report = kNever;
  };

  static Message Missing(const OperationId& id, const Pending& pending, Time now);
  Message Decide(const OperationId& id, const Pending& pending);
  Message Agreed(const OperationId& id, const Pending& pending);

  Options options_;
  Planner planner_;
  Retirement retirement_;
  std::vector<int32_t> joined_;   // in the order they did
  std::vector<Rank> late_joins_;  // that wait for the end of a retirement
  uint32_t next_entry_ = 1;
  std::map<OperationId, Pending> pending_;
  std::vector<Rank> lost_;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_COORDINATOR_H_
