// What a seat is to its trainer; what it is to the others is in seat.cc.
#include <algorithm>
#include <utility>

#include "core/replicated/quorum.h"
#include "core/replicated/seat.h"

namespace covey {
namespace {

// Nobody can give a snapshot when so many beats running say so: one may be under way.
constexpr int kBeatsInNeed = 4;
// Who leaves without a leader listens for so long after it has asked.
constexpr Time kLastGraces = 4;

}  // namespace

uint64_t Seat::next_step() const {
  return (options_.skips_ahead || is_overdue_ ? std::max(step_, read_) : step_) + 1;
}

// The leader lets versions fire.
void Seat::set_grace(Time grace) {
  options_.admission.grace = grace;
  if (reign_ != nullptr) reign_->set_grace(grace);
}

uint64_t Seat::Publish(std::span<const double> hypers) {
  CountFromLast();
  step_ = next_step();
  pieces_.Publish(step_, hypers);
  return Arrive();
}

uint64_t Seat::Skip() {
  CountFromLast();
  step_ = next_step();
  pieces_.Skip(step_);
  return Arrive();
}

uint64_t Seat::Arrive() {
  if (Standing{standing_}.finished()) ++standing_;
  SendPieces();
  return step_;
}

Found Seat::Read(uint64_t version, std::span<void* const> to, RoundRecord* record) {
  if (version > executed()) return Found::kNotYet;
  const LedgerEntry* entry = ledger_.Find(version);
  if (entry == nullptr) return Found::kGone;
  RoundRecord known;
  if (record == nullptr) record = &known;
  ReadRecord(geometry_, entry->body.data(), record);
  const std::byte* from = entry->body.data() + geometry_.record_bytes();
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] != nullptr)
      options_.kernels->copy(static_cast<std::byte*>(to[i]), from + layout_.offsets_bytes()[i],
                             layout_.lengths_bytes()[i], Stores::kCached);
  read_ = std::max(read_, version);
  is_overdue_ = record->missing[static_cast<size_t>(options_.self)] > 0;
  return Found::kYes;
}

bool Seat::IsAsked(uint64_t applied, Time) {
  return view_.attempt == attempt_ && view_.ask > 0 && applied >= view_.ask_version &&
         given_number_ != view_.number;
}

bool Seat::IsAnyInNeed() const {
  return std::any_of(view_.needs.begin(), view_.needs.end(),
                     [](uint64_t need) { return need > 0; });
}

void Seat::Give(uint64_t applied, Bytes state) {
  // A beat that came since it was asked may ask nobody, or for a later one.
  if (!IsAsked(applied, 0)) return;
  // Once for each beat that asks: the leader goes on asking until it has come.
  given_number_ = view_.number;
  Letter gift{.kind = LetterKind::kGift, .version = applied};
  gift.body = std::move(state);
  outbox_.Send(static_cast<int32_t>(view_.ask) - 1, std::move(gift));
}

bool Seat::Seek(Gift* gift) {
  const uint64_t lowest = std::max(read_ + 1, ledger_.first() - 1);
  if (gift_.version >= lowest) {
    *gift = std::exchange(gift_, {});
    read_ = gift->version;
    is_overdue_ = true;
    need_ = 0;
    if (leader_ >= 0) SendState(leader_);
    return true;
  }
  if (need_ == lowest) return false;
  need_ = lowest;
  if (leader_ >= 0) SendState(leader_);
  return false;
}

void Seat::Finish() {
  const Standing standing{standing_};
  pieces_.OnFinished();
  if (!standing.finished() || HasGivenUp()) ++tries_;
  if (!standing.finished()) ++standing_;
  SendPieces();
  if (leader_ >= 0) SendState(leader_);
}

void Seat::GoOn() {
  CountFromLast();
  if (Standing{standing_}.finished()) ++standing_;
}

// After a finish(): steps may have gone into fewer versions, and versions be made without this one.
void Seat::CountFromLast() {
  if (Standing{standing_}.finished()) step_ = std::max(step_, executed());
}

void Seat::Leave() {
  has_left_ = true;
  Finish();
}

std::vector<int32_t> Seat::Unfinished() {
  std::vector<int32_t> members;
  for (int32_t i = 0; i < shape_.size; ++i)
    if (i != options_.self && !lost_[static_cast<size_t>(i)] && !HasFinished(i))
      members.push_back(i);
  return members;
}

// As often as this one, or for good: as the leader has told it.
bool Seat::HasFinished(int32_t member) const {
  const auto index = static_cast<size_t>(member);
  return index < view_.standings.size() &&
         Standing{view_.standings[index]}.times() >= Standing{standing_}.times();
}

Versions::Givers Seat::FindGivers() {
  // replicated-W10: there is no donor when four beats in a row say that all are in need.
  Givers givers{.any = all_in_need_ < kBeatsInNeed};
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self || lost_[index] || HasLeft(i)) continue;
    const bool is_known = index < view_.standings.size();
    givers.any_unfinished |= !is_known || !Standing{view_.standings[index]}.finished();
  }
  return givers;
}

bool Seat::HasLeft(int32_t member) const {
  const auto index = static_cast<size_t>(member);
  return index < view_.standings.size() && view_.standings[index] == kHasLeft;
}

void Seat::Meet() {
  met_ = Standing{standing_}.times();
  if (leader_ >= 0) SendState(leader_);
}

std::vector<int32_t> Seat::Unmet() {
  std::vector<int32_t> members;
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self || lost_[index] || HasLeft(i)) continue;
    if (index >= view_.mets.size() || view_.mets[index] < met_) members.push_back(i);
  }
  return members;
}

bool Seat::HaveAllLeft() {
  bool all = has_left_ && pieces_.empty();
  for (int32_t i = 0; i < shape_.size; ++i)
    all &= i == options_.self || lost_[static_cast<size_t>(i)] || HasLeft(i);
  return all;
}

Versions::Lack Seat::Lacking() {
  if (!IsCutOff()) return {};
  Lack lack{.first = executed() + 1, .last = known_, .gone = {}};
  for (int32_t i = 0; i < shape_.size; ++i)
    if (lost_[static_cast<size_t>(i)]) lack.gone.push_back(i);
  return lack;
}

bool Seat::IsCutOff() const {
  // replicated-W7c: cut off is a seat whose leader is, as of the same versions.
  return view_.is_cut_off && view_.attempt == attempt_ && view_.executed == ledger_.executed();
}

// ---- It leaves ----------------------------------------------------------------------------------

void Seat::Depart(Time latest) {
  if (departs_by_ == kNever) moved_at_ = 0;
  departs_by_ = std::min(departs_by_, latest);
}

// As of its last look, when all that had come was read.
bool Seat::IsSettled() const {
  const bool is_given =
      pieces_.empty() || IsCutOff() || looked_at_ - moved_at_ > options_.engine_grace;
  if (!is_given) return false;
  // replicated-W7c: a seat leaves when its leader knows as much, or when it hears of no other.
  if (reign_ != nullptr) return reign_->AreAllTold(lost_, listens_since_, looked_at_);
  return IsLedAsFar() || !HearsOfOthers();
}

// Anybody who may still read. Who has lost its leader says nothing until its patience is over, and
// this seat asks when its own is.
bool Seat::HearsOfOthers() const {
  const Time longest = Patience() + kLastGraces * options_.engine_grace;
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self || lost_[index] || HasLeft(i)) continue;
    if (looked_at_ - std::max(heard_at_[index], listens_since_) <= longest) return true;
  }
  return false;
}

// A leader that lives and is heard of knows what it knows.
bool Seat::IsLedAsFar() const {
  return leader_ >= 0 && !lost_[static_cast<size_t>(leader_)] && silent_ <= options_.engine_grace &&
         view_.attempt == attempt_ && view_.executed >= ledger_.executed();
}

void Seat::Part() {
  for (int32_t i = 0; i < shape_.size; ++i)
    // replicated-W7c: the word says how far this seat knows, so the others see what they lack.
    if (i != options_.self) outbox_.Send(i, {.kind = LetterKind::kWord});
  Drain(looked_at_);
  has_parted_ = true;
}

// Who has lost its leader asks all: those that it has not heard since are silent, too.
std::vector<Seat::Silence> Seat::HeldUpBy(Time now) const {
  std::vector<Silence> silences;
  std::vector<bool> answers(static_cast<size_t>(shape_.size), true);
  const bool is_led = reign_ == nullptr && silent_ <= options_.engine_grace && leader_ >= 0;
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self || lost_[index]) continue;
    Time since = 0;
    if (reign_ != nullptr)
      since = reign_->SilenceOf(i, lost_, now);
    else if (is_led)
      since = index < view_.silences.size() ? static_cast<Time>(view_.silences[index]) : 0;
    else if (heard_at_[index] <= led_at_)
      since = now - std::max(heard_at_[index], led_at_);
    if (since <= options_.engine_grace) continue;
    answers[index] = false;
    silences.push_back({i, since});
  }
  if (IsQuorum(answers, lost_)) silences.clear();
  return silences;
}

// As of one beat. A dead rank has finished when the leader says so: this seat may hear of the loss
// before it hears of the versions that the rank was in.
bool Seat::IsFlushed() {
  const auto self = static_cast<size_t>(options_.self);
  // replicated-W7d: all that is known as decided has come. replicated-W11: so have its own nulls.
  bool all = pieces_.empty() && view_.attempt == attempt_ && view_.quiet &&
             view_.executed == executed() && executed() >= known_ &&
             view_.standings[self] == standing_;
  // replicated-W7d: a loss alone does not mean that a rank has finished.
  for (int32_t i = 0; all && i < shape_.size; ++i) all = i == options_.self || HasFinished(i);
  return all;
}

}  // namespace covey
