#include "core/replicated/reign.h"

#include <algorithm>
#include <utility>

#include "core/replicated/quorum.h"

namespace covey {
namespace {

constexpr uint64_t kMostBeats = 2;  // that a seat has not answered
constexpr Time kBeatsPerGrace = 4;
// Who leaves loses for others what they lack, for ever: it waits for longer than a leader does.
constexpr Time kLastGraces = 4;

}  // namespace

Reign::Reign(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout,
             uint64_t attempt, Ledger* ledger, Outbox* outbox)
    : options_(options),
      size_(shape.size),
      attempt_(attempt),
      ledger_(ledger),
      outbox_(outbox),
      tally_(options.tally, shape, layout),
      seats_(static_cast<size_t>(shape.size)) {
  if (ledger->undecided().has_value())
    // replicated-W7: a version that earlier attempts may have decided is proposed again, as it is.
    ledger->Restamp(attempt);
  else
    ledger->Void(attempt);
}

void Reign::OnState(int32_t from, const Letter& state, Time now) {
  Seated& seat = seats_[static_cast<size_t>(from)];
  seat.is_known = true;
  seat.heard_at = now;
  seat.progress = {.executed = state.executed, .kept = state.kept, .has_entry = state.version > 0};
  seat.applied = state.applied;
  seat.need = state.need;
  // replicated-W10: each seat says itself what it has applied and met.
  seat.met = std::max(seat.met, state.met);
  seat.answered = std::max(seat.answered, state.number);
  tally_.OnState(from, state);
  // It has caught up: it is to hear that nothing is proposed.
  const bool is_void = !ledger_->undecided().has_value();
  seat.is_due |= is_void && state.executed == ledger_->executed() && state.kept < attempt_;
  Serve(from);
}

void Reign::OnPiece(int32_t from, Letter piece) {
  // replicated-W7a: pieces wait until it is known which versions there are.
  if (!tally_.is_open()) return early_.push_back({from, std::move(piece)});
  Letter held{.kind = LetterKind::kHeld};
  held.consumed = ledger_->consumed()[static_cast<size_t>(from)];
  // replicated-W7b: a piece that a decided version has is not taken again.
  if (piece.content.last > held.consumed) held.content = tally_.OnPiece(from, piece);
  outbox_->Send(from, std::move(held));
}

void Reign::TakeEarly() {
  for (Post& piece : std::exchange(early_, {})) OnPiece(piece.to, std::move(piece.letter));
}

// Whether it keeps what this leader keeps, or knows that this version is decided.
bool Reign::Keeps(int32_t seat) const {
  const Progress& mine = ledger_->progress();
  const Seated& other = seats_[static_cast<size_t>(seat)];
  if (seat == options_.self) return true;
  if (!other.is_known) return false;
  // replicated-W5: a seat that knows this version as decided counts as one that keeps it.
  if (other.progress.executed != mine.executed)
    return mine.has_entry && other.progress.executed > mine.executed;
  return other.progress.kept == attempt_ && other.progress.has_entry == mine.has_entry;
}

void Reign::Settle(const std::vector<bool>& lost) {
  const bool is_version = ledger_->undecided().has_value();
  if (!is_version && tally_.is_open()) return;
  std::vector<bool> keepers;
  for (int32_t i = 0; i < size_; ++i) keepers.push_back(Keeps(i));
  // replicated-W5: a version is decided once a majority keeps it. replicated-W7a: counting begins
  // once a majority keeps nothing of earlier attempts.
  if (!IsQuorum(keepers, lost)) return;
  if (is_version) ledger_->Decide();
  if (is_version && tally_.is_open()) tally_.OnDecided();
  // A version that others have left is decided also by those that know it, and these may keep the
  // next of an earlier attempt: it is open once a majority keeps nothing.
  if (!is_version) {
    tally_.Open(*ledger_);
    TakeEarly();
  }
  for (Seated& seat : seats_) seat.is_due = true;
  for (int32_t i = 0; i < size_; ++i) Serve(i);
}

bool Reign::IsCutOff() const {
  return tally_.is_open() && !ledger_->undecided().has_value() &&
         ledger_->executed() < outbox_->known();
}

Time Reign::Advance(const std::vector<bool>& lost, Time now) {
  Time until = kNever;
  if (begun_at_ == 0) begun_at_ = now;
  std::vector<bool> heard;
  for (const Seated& seat : seats_)
    heard.push_back(seat.is_known && now - seat.heard_at <= options_.grace);
  bool moved = true;
  while (moved) {
    Settle(lost);
    moved = false;
    // replicated-W7c: a leader that is cut off fires nothing: others have read these versions.
    if (!tally_.is_open() || ledger_->undecided().has_value() || IsCutOff()) break;
    until = kNever;
    std::optional<LedgerEntry> entry = tally_.Fire(lost, heard, now, &until);
    if (!entry.has_value()) break;
    ++fired_;
    moved = true;
    ledger_->Propose(*std::move(entry), attempt_);
    for (int32_t i = 0; i < size_; ++i) Serve(i);
  }
  FindGiver(lost, heard, now);
  NoteNews(lost);
  Beat(lost, now, &until);
  return until;
}

// The next version that the seat has not, unless one is under way to it.
void Reign::Serve(int32_t index) {
  Seated& seat = seats_[static_cast<size_t>(index)];
  if (index == options_.self || !seat.is_known) return;
  const Progress& at = seat.progress;
  const bool has_answered = at.executed >= seat.sent ||
                            (at.executed + 1 == seat.sent && at.has_entry && at.kept == attempt_);
  // replicated-L1: one version at a time to each seat.
  if (!has_answered) return;
  const uint64_t next = at.executed + 1;
  if (next > ledger_->executed()) {
    const bool has_it = at.has_entry && at.kept == attempt_;
    const bool is_next = next == ledger_->executed() + 1 && ledger_->undecided().has_value();
    if (is_next && !has_it) SendEntry(index, *ledger_->undecided());
    return;
  }
  // One that it keeps of this attempt is decided by the next beat.
  if (seat.sent == next) return;
  // replicated-W10: versions that the log has are sent one by one; a seat behind it skips.
  if (const LedgerEntry* entry = ledger_->Find(next)) return SendEntry(index, *entry);
  Letter skip{.kind = LetterKind::kSkip};
  skip.list = ledger_->consumed();
  skip.missing = ledger_->missing();
  seat.sent = ledger_->executed();
  outbox_->Send(index, std::move(skip));
}

void Reign::SendEntry(int32_t index, const LedgerEntry& entry) {
  seats_[static_cast<size_t>(index)].sent = entry.version;
  Letter letter{.kind = LetterKind::kEntry, .version = entry.version};
  letter.list = entry.consumed;
  letter.missing = entry.missing;
  letter.body = entry.body;
  outbox_->Send(index, std::move(letter));
}

// That of one that is dead is told here: what it had sent to this leader was read, and who hears of
// its death otherwise may not have the versions that it is in.
uint64_t Reign::StandingOf(int32_t seat, const std::vector<bool>& lost) {
  return lost[static_cast<size_t>(seat)] ? kHasLeft : tally_.StandingOf(seat);
}

// What beats tell all.
void Reign::NoteNews(const std::vector<bool>& lost) {
  std::vector<uint64_t> news{tally_.IsQuiet() ? uint64_t{1} : 0, IsCutOff() ? uint64_t{1} : 0};
  for (int32_t i = 0; i < size_; ++i) {
    news.push_back(StandingOf(i, lost));
    news.push_back(tally_.OverOf(i));
    const Seated& seat = seats_[static_cast<size_t>(i)];
    news.push_back(seat.met);
    news.push_back(seat.need > 0 ? 1 : 0);
  }
  // Whom it is for changes by itself while nobody can give one.
  news.push_back(giver_ < 0 ? 0 : static_cast<uint64_t>(needy_ + 1));
  news.push_back(static_cast<uint64_t>(giver_ + 1));
  if (news == news_) return;
  news_ = std::move(news);
  for (Seated& seat : seats_) seat.is_due = true;
}

// One seat gets a snapshot at a time, from one that runs and has applied enough; another gives it
// when that takes too long.
void Reign::FindGiver(const std::vector<bool>& lost, const std::vector<bool>& heard, Time now) {
  const auto may_give = [&](int32_t i) {
    const auto index = static_cast<size_t>(i);
    return !lost[index] && heard[index] && seats_[index].need == 0 &&
           seats_[index].applied >= seats_[static_cast<size_t>(needy_)].need;
  };
  const auto needs = [&](int32_t i) { return i >= 0 && seats_[static_cast<size_t>(i)].need > 0; };
  const bool is_open = needs(needy_) && now - given_since_ <= options_.grace;
  // replicated-W10: one donor at a time; another when it takes longer than engine_grace.
  if (is_open && giver_ >= 0 && may_give(giver_)) return;
  const int32_t last = std::max(giver_, 0);
  giver_ = -1;
  if (!is_open) {
    for (int32_t i = 1; i <= size_; ++i) {
      if (!needs((needy_ + i) % size_)) continue;
      needy_ = (needy_ + i) % size_;
      given_since_ = now;
      break;
    }
  }
  if (!needs(needy_)) return;
  for (int32_t i = 1; i <= size_ && giver_ < 0; ++i)
    if (may_give((last + i) % size_)) giver_ = (last + i) % size_;
}

Time Reign::SilenceOf(int32_t index, const std::vector<bool>& lost, Time now) const {
  const Seated& seat = seats_[static_cast<size_t>(index)];
  if (index == options_.self || lost[static_cast<size_t>(index)]) return 0;
  return std::max<Time>(0, now - std::max(seat.heard_at, begun_at_));
}

void Reign::BeginLast() {
  has_begun_last_ = true;
  last_executed_ = ledger_->executed();
  for (Seated& seat : seats_) {
    seat.is_due = true;
    seat.last_beat = seat.beats + 1;
  }
}

bool Reign::AreAllTold(const std::vector<bool>& lost, Time listens_since, Time now) const {
  for (int32_t i = 0; i < size_; ++i) {
    const Seated& seat = seats_[static_cast<size_t>(i)];
    // replicated-W7c: a leader leaves once all that it hears of know what it knows.
    if (i == options_.self || lost[static_cast<size_t>(i)]) continue;
    if (std::min(SilenceOf(i, lost, now), now - listens_since) > kLastGraces * options_.grace)
      continue;
    if (seat.progress.executed < last_executed_ || seat.answered < seat.last_beat) return false;
  }
  return true;
}

void Reign::Beat(const std::vector<bool>& lost, Time now, Time* until) {
  for (int32_t i = 0; i < size_; ++i) {
    Seated& seat = seats_[static_cast<size_t>(i)];
    // replicated-L1: two unanswered beats at most: a stopped seat costs its peers no more.
    if (lost[static_cast<size_t>(i)] || seat.beats - seat.answered >= kMostBeats) continue;
    if (!seat.is_due && seat.next_beat > now) {
      *until = std::min(*until, seat.next_beat);
      continue;
    }
    seat.is_due = false;
    seat.next_beat = now + options_.grace / kBeatsPerGrace;
    Letter beat{.kind = LetterKind::kBeat, .number = ++seat.beats};
    beat.quiet = tally_.IsQuiet();
    beat.over = tally_.OverOf(i);
    if (giver_ == i) {
      beat.ask = static_cast<uint64_t>(needy_ + 1);
      beat.ask_version = seats_[static_cast<size_t>(needy_)].need;
    }
    beat.is_void = !ledger_->undecided().has_value();
    beat.is_cut_off = IsCutOff();
    for (int32_t other = 0; other < size_; ++other) {
      beat.list.push_back(StandingOf(other, lost));
      beat.needs.push_back(seats_[static_cast<size_t>(other)].need > 0 ? 1 : 0);
      beat.mets.push_back(seats_[static_cast<size_t>(other)].met);
      beat.silences.push_back(static_cast<uint64_t>(SilenceOf(other, lost, now)));
    }
    outbox_->Send(i, std::move(beat));
    *until = std::min(*until, seat.next_beat);
  }
}

}  // namespace covey
