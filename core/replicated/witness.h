// The witness of an even number of replicas: it has the half vote that decides between two halves
// (quorum.h), and no data. It is a record of constant size outside of all hosts of the job, which
// the launcher changes for a rank that has seen its last state only (compare and swap). This
// is a replica's way to it. As in J.-F. Paris, "Voting with Witnesses: A Consistency Scheme for
// Replicated Files", ICDCS 1986. It is asked only where the votes or acceptances are one half.
//
//   question     asked by                  yes if                              the record then
//   kLook        a pre-candidate           kVote would be answered so          same
//   kVote        a candidate of term t     t is later, or it has this vote     t, this candidate
//                                          already; and the candidate is up
//                                          to date with what is accepted
//   kAccept      the leader of term t      t is not earlier                    t, the leader, and
//                                                                              what it has accepted
//
// Invariants: one vote in each term; what it has accepted in term t is not forgotten by a candidate
// of a later one, as with a replica (Progress). A question to a record that has changed since is
// put again to the new one. One request at a time is under way.
//
// Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_WITNESS_H_
#define COVEY_CORE_REPLICATED_WITNESS_H_

#include <optional>
#include <span>

#include "core/base/types.h"
#include "core/base/wire.h"
#include "core/replicated/quorum.h"
#include "core/replicated/replicated_log.h"

namespace covey {

// At first the first replica leads term 1, and all have accepted its no-op entry.
struct WitnessRecord {
  uint64_t term = 1;      // the latest it knows,
  int32_t voted_for = 0;  // and its vote in that term
  Progress accepted{.accepted_term = 1};

  Bytes Encode() const;
  // No bytes are the record at first. False: the bytes are no record.
  static bool Decode(std::span<const std::byte> bytes, WitnessRecord* record);
  // The last version that it has accepted, committed by that or not.
  uint64_t last() const { return accepted.executed + (accepted.has_entry ? 1 : 0); }
};

// To the launcher: `record`, if its state is number `state`; no bytes: what is the record?
struct WitnessRequest {
  uint64_t number = 0;  // 1, 2, 3, ...
  uint64_t state = 0;
  Bytes record;
};
struct WitnessAnswer {
  uint64_t number = 0;
  uint64_t state = 0;  // 0: as made; each change counts
  bool is_taken = false;
  Bytes record;
};

class Witness {
 public:
  enum class Question : uint8_t { kNone, kLook, kVote, kAccept };

  // `is_there`: the job has one, and an even number of replicas.
  Witness(bool is_there, int32_t self) : is_there_(is_there), self_(self) {}

  bool is_there() const { return is_there_; }
  // The half vote if the witness agreed; and as far as it has answered.
  Half HalfIfWon() const { return is_there_ ? Half::kWithThem : Half::kOfTheFirst; }
  Half HalfOf(Question question, uint64_t term, const Progress& mine) const;
  // Nothing happens if that is the question already. REQUIRES: is_there().
  void Ask(Question question, uint64_t term, const Progress& mine);
  // There is no question any more: a later one is a new one.
  void Withdraw() { asked_ = {}; }

  std::optional<WitnessRequest> TakeRequest(Time now);
  // False: to another request, or no answer.
  bool OnAnswer(const WitnessAnswer& answer);
  // The record of the last answer.
  const WitnessRecord& record() const { return record_; }
  // The time since which an answer is missing; 0: none is.
  Time waits_since() const { return awaited_ > 0 ? asked_at_ : 0; }

 private:
  struct Asked {
    Question question = Question::kNone;
    uint64_t term = 0;
    Progress mine;

    bool operator==(const Asked&) const = default;
  };
  enum class Verdict : uint8_t { kOpen, kYes, kNo };

  bool MayTake(WitnessRecord* record) const;

  const bool is_there_;
  const int32_t self_;
  Asked asked_, written_for_;
  Verdict verdict_ = Verdict::kOpen;
  uint64_t number_ = 0, awaited_ = 0;  // of requests; 0: no answer is missing
  Time asked_at_ = 0;
  uint64_t state_ = 0;
  bool is_known_ = false;  // the record was read since the term of the question is asked of
  WitnessRecord record_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_WITNESS_H_
