// Which streams travel together: the coordinator's half of bundles (agree-N7 and agree-N8).
//
// Candidates are named allreduces equal in dtype, op, scales and device whose first occurrences
// every member submitted with no wait in between and within a short window, measured on its own
// clock: such streams would otherwise travel one after the other with nothing to overlap. Streams
// that come further apart, as gradients during backward do, stay apart. Once no new one has come
// for a window, or many have, each bundle found is FROZEN on all members and, when all have
// answered, SWITCHed to: from the first occurrence that no member has begun, counted for every
// stream from its announced occurrence. (Taking each stream's own first unbegun occurrence would
// pair this step's gradient of one layer with the next step's of another, and break every
// exchange.)
//
// Sans-IO: agreements, answers and time in, envelopes out. A stream is considered once, until it is
// dropped (retire.h).
#ifndef COVEY_CORE_AGREE_PLANNER_H_
#define COVEY_CORE_AGREE_PLANNER_H_

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/agree/message.h"

namespace covey {

// A stream that has been agreed: every member's announcement.
struct Candidate {
  std::string stream;
  uint32_t entry = 0;
  uint64_t occurrence = 0;  // that was announced
  Signature signature;
  std::vector<uint64_t> waits;     // by group index
  std::vector<Time> submitted_at;  // by group index
};

struct FusionRules {
  size_t threshold_bytes = 0;  // of a bundle; 0 = no bundles
  Time window = 0;
};

// Pure: groups of two or more candidates, by index.
std::vector<std::vector<size_t>> PlanBundles(std::span<const Candidate> candidates,
                                             const FusionRules& rules);

class Planner {
 public:
  Planner(const FusionRules& rules, size_t segment_bytes)
      : rules_(rules), segment_bytes_(segment_bytes) {}

  // All members of the group announced `id` alike and it became `entry`.
  void OnAgreed(const OperationId& id, uint32_t entry, const std::vector<int32_t>& members,
                const std::vector<std::optional<Message>>& announced, Time now);
  // Plans what is due; numbers bundles like entries.
  void OnTick(Time now, uint32_t* next_entry, std::vector<Envelope>* outbox);
  void OnFrozen(Rank from, const Message& answer, std::vector<Envelope>* outbox);
  // Whether the stream is part of a plan that has not been made, or not been answered.
  bool IsPlanning(uint64_t group, const std::string& stream) const;
  // The stream is dropped: when it comes again it is considered again.
  void Forget(uint64_t group, const std::string& stream);
  // The groups of this rank change no more.
  void OnLoss(Rank lost);

  Time NextDeadline() const { return due_; }

 private:
  struct GroupState {
    std::vector<int32_t> members;
    std::vector<Candidate> candidates;
    std::set<std::string> considered;
  };
  struct Freezing {
    std::vector<int32_t> members;
    Message freeze;
    std::vector<std::optional<Message>> answers;  // by group index
  };

  // The plan that all have answered: SWITCH.
  static Message Switch(const Freezing& freezing);
  void Freeze(uint64_t group, const GroupState& state, const std::vector<size_t>& chosen,
              uint32_t id, std::vector<Envelope>* outbox);

  FusionRules rules_;
  size_t segment_bytes_;
  Time due_ = kNever;
  std::map<uint64_t, GroupState> groups_;
  std::map<std::pair<uint64_t, uint32_t>, Freezing> freezing_;  // by group, bundle
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_PLANNER_H_
