#include "core/replicated/seat.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/replicated/quorum.h"

namespace covey {
namespace {

// At most this part of a patience counts between two looks of a seat: it was stopped itself, and
// the leader's letters lie before it.
constexpr Time kLooks = 4;
constexpr int kMostDoublings = 6;

// Of all fields that a letter has, and the longest body but for a state: a version's.
size_t LongestBytes(const RoundMemory& geometry, const RoundLayout& layout) {
  Letter longest;
  for (std::vector<uint64_t>* words :
       {&longest.list, &longest.missing, &longest.needs, &longest.mets, &longest.silences})
    words->resize(static_cast<size_t>(geometry.size()));
  longest.hypers.resize(geometry.hypers());
  return longest.Encode().size() + geometry.record_bytes() + layout.length_bytes();
}

}  // namespace

Seat::Seat(const Options& options, const RoundMemory::Shape& shape, const RoundLayout& layout)
    : options_(options),
      shape_(shape),
      layout_(layout),
      geometry_(shape, layout),
      longest_bytes_(LongestBytes(geometry_, layout_)),
      ledger_(shape.size, static_cast<uint64_t>(shape.log)),
      pieces_(&layout_, options.kernels),
      votes_(static_cast<size_t>(shape.size)),
      lost_(static_cast<size_t>(shape.size)),
      heard_at_(static_cast<size_t>(shape.size)),
      max_wait_(options.max_wait) {
  CHECK(!shape.models.on(), "models are averaged on one host only");
  ledger_.Void(attempt_);
  if (options.self != leader_) return;
  Lead();
  reign_->BeginFirst();
}

// ---- The network --------------------------------------------------------------------------------

void Seat::OnLetter(int32_t from, std::span<const std::byte> bytes, Time now) {
  Letter letter;
  if (has_parted_ || !Letter::Decode(bytes, &letter) || !IsSound(letter)) return;
  has_heard_ = true;
  heard_at_[static_cast<size_t>(from)] = now;
  Handle(from, std::move(letter), now);
  Drain(now);
}

size_t Seat::LongestLetterBytes() const {
  // A snapshot is a state as its writer packs it: this side does not know how long.
  constexpr size_t kStates = 64, kBesideTheModel = size_t{4} << 30;
  return longest_bytes_ + (need_ > 0 ? kStates * layout_.length_bytes() + kBesideTheModel : 0);
}

// Whether all that it carries is as long as was agreed.
bool Seat::IsSound(const Letter& letter) const {
  const auto size = static_cast<size_t>(shape_.size);
  const bool has_lists = letter.list.size() == size && letter.missing.size() == size;
  switch (letter.kind) {
    case LetterKind::kPiece:
      return letter.content.count == 0 || (letter.hypers.size() == geometry_.hypers() &&
                                           letter.body.size() == layout_.length_bytes());
    case LetterKind::kEntry:
      return has_lists && letter.body.size() == geometry_.record_bytes() + layout_.length_bytes();
    case LetterKind::kSkip:
      return has_lists;
    case LetterKind::kBeat:
      return letter.list.size() == size && letter.needs.size() == size &&
             letter.mets.size() == size && letter.silences.size() == size && letter.ask <= size;
    default:
      return true;
  }
}

void Seat::Handle(int32_t from, Letter letter, Time now) {
  // replicated-W7c: how far any seat knows counts in whatever attempt it is told.
  NoteKnown(letter);
  // replicated-W7: a later attempt ends this one; its leader is not known yet.
  if (letter.attempt > attempt_) Follow(letter.attempt);
  if (letter.kind == LetterKind::kGift) return OnGift(from, std::move(letter));
  if (letter.kind == LetterKind::kWord) return OnLoss(from);
  if (letter.attempt < attempt_) {
    const bool is_leaders = letter.kind == LetterKind::kAsk || letter.kind == LetterKind::kBeat ||
                            letter.kind == LetterKind::kEntry || letter.kind == LetterKind::kSkip;
    // replicated-W7: letters of an attempt that is over are dropped; a leader learns the new one.
    if (is_leaders && from != options_.self) SendState(from);
    return;
  }
  switch (letter.kind) {
    case LetterKind::kAsk:
      return OnAsk(from, letter);
    case LetterKind::kYes:
      votes_[static_cast<size_t>(from)] = true;
      return LeadIfChosen();
    case LetterKind::kState:
      if (reign_ != nullptr) reign_->OnState(from, letter, now);
      return;
    case LetterKind::kPiece:
      if (reign_ != nullptr) reign_->OnPiece(from, std::move(letter));
      return;
    case LetterKind::kHeld:
      pieces_.OnConsumed(letter.consumed);
      pieces_.OnHeld(letter.content);
      return SendPieces();
    case LetterKind::kBeat:
      LearnLeader(from, now);
      return OnBeat(std::move(letter));
    case LetterKind::kEntry:
      LearnLeader(from, now);
      return OnEntry(std::move(letter));
    case LetterKind::kSkip:
      LearnLeader(from, now);
      if (letter.executed > executed())
        ledger_.Skip(
            {.version = letter.executed, .consumed = letter.list, .missing = letter.missing});
      NoteDecided();
      return SendState(leader_);
    case LetterKind::kGift:
    case LetterKind::kWord:
      return;
  }
}

void Seat::NoteKnown(const Letter& letter) {
  const uint64_t told = std::max(letter.known, letter.executed);
  if (told > known_) known_in_ = letter.attempt;
  if (told == known_) known_in_ = std::min(known_in_, letter.attempt);
  known_ = std::max(known_, told);
}

void Seat::OnBeat(Letter beat) {
  DecideUpTo(beat.executed);
  // Nothing that an earlier attempt has proposed can be decided any more.
  // replicated-W7a: the leader asks to keep nothing for the next version, in its attempt.
  if (beat.is_void && beat.executed == executed() && ledger_.progress().kept < attempt_)
    ledger_.Void(attempt_);
  view_ = {.attempt = attempt_,
           .executed = beat.executed,
           .number = beat.number,
           .over = beat.over,
           .quiet = beat.quiet,
           .is_cut_off = beat.is_cut_off,
           .standings = std::move(beat.list),
           .ask = beat.ask,
           .ask_version = beat.ask_version,
           .needs = std::move(beat.needs),
           .mets = std::move(beat.mets),
           .silences = std::move(beat.silences)};
  all_in_need_ = AreAllInNeed(view_) ? all_in_need_ + 1 : 0;
  SendState(leader_);
}

// All but those that have left or are dead.
bool Seat::AreAllInNeed(const View& view) const {
  for (int32_t i = 0; i < shape_.size; ++i) {
    const auto index = static_cast<size_t>(i);
    if (i == options_.self || lost_[index] || view.standings[index] == kHasLeft) continue;
    if (view.needs[index] == 0) return false;
  }
  return true;
}

void Seat::OnGift(int32_t from, Letter gift) {
  if (need_ == 0 || gift.version <= gift_.version) return;
  gift_ = {.from = from, .version = gift.version, .state = std::move(gift.body)};
}

void Seat::OnEntry(Letter entry) {
  DecideUpTo(entry.executed);
  if (entry.version == executed() + 1) {
    LedgerEntry next{.version = entry.version,
                     .consumed = std::move(entry.list),
                     .missing = std::move(entry.missing),
                     .body = std::move(entry.body)};
    // replicated-W5: decided already when it was sent; else it is kept, and decided by a later
    // letter.
    if (entry.version <= entry.executed)
      ledger_.Learn(std::move(next));
    else
      ledger_.Propose(std::move(next), attempt_);
    NoteDecided();
  }
  SendState(leader_);
}

void Seat::DecideUpTo(uint64_t version) {
  const Progress& progress = ledger_.progress();
  // replicated-W7: what it keeps is decided only if the leader of this attempt has proposed it.
  if (!progress.has_entry || progress.kept != attempt_ || progress.executed >= version) return;
  ledger_.Decide();
  NoteDecided();
}

void Seat::NoteDecided() {
  if (executed() > asked_at_) {
    asked_ = 0;
    moved_at_ = looked_at_;
  }
  asked_at_ = executed();
  pieces_.OnConsumed(ledger_.consumed()[static_cast<size_t>(options_.self)]);
  pieces_.OnExecuted(executed());
  SendPieces();
}

void Seat::OnAsk(int32_t from, const Letter& ask) {
  const Progress theirs{.executed = ask.executed, .kept = ask.kept, .has_entry = ask.version > 0};
  // replicated-W4: one vote in each attempt, so two seats never lead the same one.
  if (voted_for_ >= 0 || leader_ >= 0) return;
  // replicated-W7: no vote for a candidate that knows or keeps less than this seat.
  if (!Progress::MayFollow(ledger_.progress(), theirs)) return;
  voted_for_ = from;
  silent_ = 0;
  outbox_.Send(from, {.kind = LetterKind::kYes});
}

void Seat::Follow(uint64_t attempt) {
  attempt_ = attempt;
  leader_ = voted_for_ = -1;
  asks_ = false;
  told_standing_ = 0;
  if (reign_ != nullptr) fired_ += reign_->fired();
  reign_.reset();
  // replicated-W7b: what lay with the last leader is to be sent again.
  pieces_.OnNewLeader();
}

void Seat::LearnLeader(int32_t from, Time now) {
  silent_ = 0;
  led_at_ = now;
  if (leader_ == from) return;
  leader_ = from;
  SendPieces();
}

// ---- Leaders ------------------------------------------------------------------------------------

// The lowest that lives asks first; who has asked in vain is more patient: a leader that is only
// slow gets its time.
Time Seat::Patience() const {
  Time patience = leader_ >= 0 && lost_[static_cast<size_t>(leader_)] ? 0 : options_.engine_grace;
  for (int32_t i = 0; i < options_.self; ++i)
    if (!lost_[static_cast<size_t>(i)] && i != leader_) patience += options_.engine_grace / kLooks;
  // replicated-W7: twice as patient after each vain request, or two candidates disturb each other.
  return patience << std::min(asked_, kMostDoublings);
}

void Seat::Ask() {
  // Who hears nobody would only pile up letters before those that are stopped.
  if (!has_heard_) return;
  Follow(attempt_ + 1);
  asks_ = true;
  ++asked_;
  silent_ = 0;
  has_heard_ = false;
  voted_for_ = options_.self;
  std::fill(votes_.begin(), votes_.end(), false);
  votes_[static_cast<size_t>(options_.self)] = true;
  const Progress& mine = ledger_.progress();
  for (int32_t i = 0; i < shape_.size; ++i)
    if (i != options_.self && !lost_[static_cast<size_t>(i)])
      outbox_.Send(i, {.kind = LetterKind::kAsk,
                       .version = mine.has_entry ? mine.executed + 1 : 0,
                       .kept = mine.kept});
  LeadIfChosen();
}

void Seat::LeadIfChosen() {
  // replicated-W4: a majority of votes, of the seats that are not dead.
  if (asks_ && IsQuorum(votes_, lost_)) Lead();
}

// Whether what it keeps may be another version than the one that was decided. Not if a majority of
// all has voted: that knows. Else those that had decided may all have left: what it keeps is theirs
// if it was kept in an attempt that is no earlier than theirs.
bool Seat::IsInDoubt() const {
  const std::vector<bool> nobody(votes_.size());
  return ledger_.undecided().has_value() && known_ > ledger_.executed() &&
         !IsQuorum(votes_, nobody) && ledger_.progress().kept < known_in_;
}

void Seat::Lead() {
  asks_ = false;
  // replicated-W7c: what it keeps may not be what departed ranks have read: it proposes nothing and
  // is cut off.
  if (IsInDoubt()) ledger_.Void(attempt_);
  adopted_ += ledger_.undecided().has_value() ? 1 : 0;
  reign_ = std::make_unique<Reign>(Reign::Options{.self = options_.self,
                                                  .grace = options_.engine_grace,
                                                  .tally = {.admission = options_.admission,
                                                            .average = options_.average,
                                                            .kernels = options_.kernels}},
                                   shape_, layout_, attempt_, &ledger_, &outbox_);
  LearnLeader(options_.self, led_at_);
}

Time Seat::Advance(Time now) {
  if (has_parted_) return kNever;
  const Time away = now - looked_at_;
  // replicated-W7: silence counts this seat's own running time: it may have been stopped itself.
  if (looked_at_ > 0) silent_ += std::min(away, options_.engine_grace / kLooks);
  if (looked_at_ == 0 || away > options_.engine_grace / 2) listens_since_ = now;
  looked_at_ = now;
  if (moved_at_ == 0) moved_at_ = now;
  Time until = now + options_.engine_grace / kLooks;
  if (reign_ == nullptr && silent_ >= Patience()) Ask();
  LeadIfChosen();
  Drain(now);
  if (departs_by_ < kNever && reign_ != nullptr && !reign_->has_begun_last()) reign_->BeginLast();
  // What it sends to itself may let it go on.
  for (bool moved = true; reign_ != nullptr && moved;) {
    const uint64_t before = executed();
    until = std::min(until, reign_->Advance(lost_, now));
    NoteDecided();
    moved = executed() > before;
    moved |= Drain(now);
  }
  if (departs_by_ < kNever && (IsSettled() || now >= departs_by_)) Part();
  return std::min(until, departs_by_);
}

void Seat::SendState(int32_t to) {
  const Progress& mine = ledger_.progress();
  Letter state{.kind = LetterKind::kState};
  state.version = mine.has_entry ? mine.executed + 1 : 0;
  state.kept = mine.kept;
  state.number = view_.attempt == attempt_ ? view_.number : 0;
  // It has finished once the leader has all it has published.
  // replicated-W7b: a rank has finished for the leader only when it has all its pieces.
  const bool is_early = Standing{standing_}.finished() && !pieces_.AreAllSent();
  state.standing = is_early ? standing_ - 1 : standing_;
  state.applied = read_;
  state.tries = is_early ? 0 : tries_;
  state.max_wait = max_wait_;
  state.left = has_left_;
  state.need = need_;
  state.met = met_;
  if (to == leader_) told_standing_ = state.standing;
  outbox_.Send(to, std::move(state));
}

void Seat::SendPieces() {
  if (leader_ < 0) return;
  if (const Pieces::Piece* piece = pieces_.Send()) {
    Letter letter{.kind = LetterKind::kPiece};
    letter.content = piece->content;
    letter.hypers = piece->hypers;
    if (piece->content.count > 0)
      letter.body.assign(piece->sum.get(), piece->sum.get() + layout_.length_bytes());
    outbox_.Send(leader_, std::move(letter));
  }
  if (pieces_.AreAllSent() && told_standing_ != standing_) SendState(leader_);
}

// To this seat what is to it.
bool Seat::Drain(Time now) {
  bool moved = false;
  do {
    for (Post& post : outbox_.Take()) {
      if (post.to == options_.self)
        local_.push_back(std::move(post));
      else
        sealed_.push_back({post.to, post.letter.Encode(), post.letter.kind == LetterKind::kWord});
    }
    if (local_.empty()) continue;
    moved = true;
    Post post = std::move(local_.front());
    local_.pop_front();
    Handle(options_.self, std::move(post.letter), now);
  } while (!local_.empty() || !outbox_.empty());
  return moved;
}

std::vector<Sealed> Seat::TakePosts() { return std::exchange(sealed_, {}); }

}  // namespace covey
