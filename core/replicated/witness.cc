#include "core/replicated/witness.h"

namespace covey {

Bytes WitnessRecord::Encode() const {
  Writer writer;
  writer.Put(term);
  writer.Put(voted_for);
  writer.Put(accepted.executed);
  writer.Put(accepted.accepted_term);
  writer.Put(accepted.attempt);
  writer.Put(static_cast<uint8_t>(accepted.has_entry ? 1 : 0));
  return writer.Take();
}

bool WitnessRecord::Decode(std::span<const std::byte> bytes, WitnessRecord* record) {
  *record = {};
  if (bytes.empty()) return true;
  Reader reader(bytes);
  record->term = reader.Get<uint64_t>();
  record->voted_for = reader.Get<int32_t>();
  record->accepted.executed = reader.Get<uint64_t>();
  record->accepted.accepted_term = reader.Get<uint64_t>();
  record->accepted.attempt = reader.Get<uint64_t>();
  record->accepted.has_entry = reader.Get<uint8_t>() != 0;
  return reader.ok();
}

Half Witness::HalfOf(Question question, uint64_t term, const Progress& mine) const {
  if (!is_there_) return Half::kOfTheFirst;
  const bool is_it = asked_.question == question && asked_.term == term &&
                     // A vote stays one, whatever the candidate hears later.
                     (question != Question::kAccept || asked_.mine == mine);
  return is_it && verdict_ == Verdict::kYes ? Half::kWithThem : Half::kMissing;
}

void Witness::Ask(Question question, uint64_t term, const Progress& mine) {
  const Asked asked{question, term, mine};
  if (asked == asked_) return;
  // A leader looks before it changes the record of earlier terms: see Replica::NoteLost.
  if (term != asked_.term) is_known_ = false;
  asked_ = asked;
  verdict_ = Verdict::kOpen;
}

bool Witness::MayTake(WitnessRecord* record) const {
  const bool is_later = asked_.term > record->term;
  if (asked_.question == Question::kAccept) {
    // replicated-W23: after a vote for a later term nothing of an earlier one is accepted.
    if (asked_.term < record->term) return false;
    record->accepted = asked_.mine;
  } else {
    // replicated-W23: one vote in each term, so two replicas never lead the same one.
    if (!is_later && (asked_.term < record->term || record->voted_for != self_)) return false;
    // replicated-W23: no vote for a candidate that lacks what the witness has accepted.
    if (!Progress::IsUpToDate(record->accepted, asked_.mine)) return false;
  }
  record->term = asked_.term;
  record->voted_for = self_;
  return true;
}

std::optional<WitnessRequest> Witness::TakeRequest(Time now) {
  if (awaited_ > 0 || asked_.question == Question::kNone || verdict_ != Verdict::kOpen)
    return std::nullopt;
  WitnessRecord record = record_;
  const bool is_look = asked_.question == Question::kLook || !is_known_;
  WitnessRequest request{.number = ++number_, .state = state_, .record = {}};
  written_for_ = {};
  // Its copy of the record may be old: a refusal counts only if the record was read since.
  if (!is_look && MayTake(&record)) {
    request.record = record.Encode();
    written_for_ = asked_;
  }
  awaited_ = number_;
  asked_at_ = now;
  return request;
}

bool Witness::OnAnswer(const WitnessAnswer& answer) {
  WitnessRecord record;
  if (awaited_ == 0 || answer.number != awaited_ || !WitnessRecord::Decode(answer.record, &record))
    return false;
  awaited_ = 0;
  state_ = answer.state;
  record_ = record;
  is_known_ = true;
  // replicated-W23: the answer counts for the question that it was written for.
  if (answer.is_taken && written_for_ == asked_) verdict_ = Verdict::kYes;
  if (verdict_ != Verdict::kOpen) return true;
  const bool may_take = MayTake(&record);
  if (!may_take || asked_.question == Question::kLook)
    verdict_ = may_take ? Verdict::kYes : Verdict::kNo;
  return true;
}

}  // namespace covey
