#include "core/partial/snapshots.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {

bool Snapshots::IsAsked(uint64_t applied, const std::vector<bool>& lost, Time now) {
  const uint64_t asked = words_->Load(memory_->AskAt());
  const Ask ask = Ask::Of(asked);
  // partial-W10a: answered already, or this trainer has not applied enough.
  if (asked == settled_ || applied < ask.version) return false;
  // partial-W10a: an offer that would do stands: no rank gives another.
  if (HasOffer(ask.version)) {
    settled_ = asked;
    return false;
  }
  const uint64_t word = words_->Load(memory_->ClaimAt());
  const Claim claim = Claim::Of(word);
  if (Ask::IsLater(claim.number, ask.number)) return false;
  Claim mine{.number = ask.number, .member = self_};
  if (claim.number == ask.number) {
    if (seen_claim_ != word) {
      seen_claim_ = word;
      seen_claim_at_ = now;
    }
    const bool is_dead = lost[static_cast<size_t>(claim.member)];
    // partial-W10a: a claim that is overdue, or of a dead rank, is taken over.
    if (!is_dead && now - seen_claim_at_ < overdue_) return false;
    if (claim.attempt == Claim::kMostAttempts) return false;
    mine.attempt = claim.attempt + 1;
  }
  return words_->CompareExchange(memory_->ClaimAt(), word, mine.Word());
}

bool Snapshots::HasOffer(uint64_t version) const {
  for (int32_t i = 0; i < memory_->size(); ++i)
    if (OfferOf(i).version >= version) return true;
  return false;
}

void Snapshots::Give(uint64_t version, std::byte* place, std::span<const Part> parts) {
  // partial-W10a: retracted before it is overwritten, so readers see that it has gone.
  Retract();
  uint64_t* at = memory_->OfferAt(self_);
  uint64_t length_bytes = 0;
  for (const Part& part : parts) {
    if (place == nullptr) break;
    kernels_->copy(place + length_bytes, part.data, part.length_bytes, Stores::kCached);
    length_bytes += part.length_bytes;
  }
  words_->Store(at + 1,
                place == nullptr ? 0 : static_cast<uint64_t>(place - memory_->Block(self_)));
  words_->Store(at + 2, length_bytes);
  words_->Store(at, version << 1 | kStands);
  offered_ = version;
  words_->Ring(memory_->EventCountAt());
}

bool Snapshots::IsStale(uint64_t applied) const {
  return offered_ > 0 && offered_ + memory_->log() < applied;
}

void Snapshots::Retract() {
  // partial-W10a: an exchange: later writes are not to be seen before it.
  if (offered_ > 0)
    words_->CompareExchange(memory_->OfferAt(self_), offered_ << 1 | kStands, offered_ << 1);
  offered_ = 0;
}

// Its version is 0 when it does not stand.
Offer Snapshots::OfferOf(int32_t member) const {
  const uint64_t* at = memory_->OfferAt(member);
  const uint64_t word = words_->Load(at);
  if ((word & kStands) == 0) return {};
  const Offer offer{.member = member,
                    .version = word >> 1,
                    .distance = words_->Load(at + 1),
                    .length_bytes = words_->Load(at + 2)};
  // partial-W10a: place and length are those of this offer only if the word is unchanged.
  return words_->Load(at) == word ? offer : Offer{};
}

Offer Snapshots::Find(uint64_t applied, uint64_t executed) {
  // Not the oldest from which the log leads on: it moves while the snapshot is made and read.
  const uint64_t margin = memory_->log() / 2;
  const uint64_t lowest = std::max(applied + 1, executed > margin ? executed - margin : 0);
  Offer best;
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const Offer offer = OfferOf(i);
    if (offer.version >= lowest && (best.member < 0 || offer.version > best.version)) best = offer;
  }
  // Before it is read: a member that sees it retracted afterwards sees that this rank may have it.
  SetInNeed(best.member < 0);
  if (best.member >= 0) return best;
  const uint64_t before = words_->Load(memory_->AskAt());
  const Ask ask = Ask::Of(before);
  // partial-W10a: an asker whose offer was retracted asks again; the owner may be dead.
  if (!SeesRetracted(ask) && ask.version >= lowest) return {};
  const Ask next{ask.number + 1, std::max(ask.version, lowest)};
  if (words_->CompareExchange(memory_->AskAt(), before, next.Word()))
    words_->Ring(memory_->EventCountAt());
  else
    retracted_.clear();  // the other's ask may have been settled before what this rank saw
  return {};
}

void Snapshots::AskFor(uint64_t version) {
  const uint64_t before = words_->Load(memory_->AskAt());
  const Ask ask = Ask::Of(before);
  // partial-W10a: a snapshot that is asked for already is not asked for again.
  if (ask.version >= version) return;
  if (words_->CompareExchange(memory_->AskAt(), before, Ask{ask.number + 1, version}.Word()))
    words_->Ring(memory_->EventCountAt());
}

void Snapshots::SetInNeed(bool is_in_need) {
  if (IsInNeed() != is_in_need) ++need_;
  words_->Store(memory_->OfferAt(self_) + 3, need_);
}

// Whether an offer that would do for `ask` was retracted since this rank has looked for it last.
bool Snapshots::SeesRetracted(const Ask& ask) {
  bool is_new = false;
  retracted_.resize(static_cast<size_t>(memory_->size()));
  for (int32_t i = 0; i < memory_->size(); ++i) {
    const uint64_t word = words_->Load(memory_->OfferAt(i));
    uint64_t* known = &retracted_[static_cast<size_t>(i)];
    if ((word & kStands) != 0 || word >> 1 < ask.version || *known == word) continue;
    is_new = true;
    *known = word;
  }
  return is_new;
}

bool Snapshots::Take(const Offer& offer, std::byte* to) {
  uint64_t* at = memory_->OfferAt(offer.member);
  const uint64_t stands = offer.version << 1 | kStands;
  const std::byte* from = memory_->Block(offer.member) + static_cast<int64_t>(offer.distance);
  kernels_->copy(to, from, offer.length_bytes, Stores::kCached);
  // partial-W10a: a copy is right only if the offer still stands after it.
  return words_->Load(at) == stands;
}

}  // namespace covey
