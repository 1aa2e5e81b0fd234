// Snapshots of a trainer's state, for a rank that has fallen behind further than the log
// (partial-W8, partial-W10). A healthy rank gives one at its next step boundary.
//
// All words lie on the control block (memory.h):
//   ask      the lowest version that would do, and the number of asks       see Ask
//   claim    the member that serves an ask, and which                       see Claim
//   offers   of each member, four words: its offer (see Offer), and where that lies: its
//            distance from the member's block, and its length; how often the member itself has
//            come to need one or no longer does: odd while it is in need. The owner only.
//
//   ask        claim              a trainer at a step boundary            claim after
//   settled                       goes on: it has loaded one word
//   beyond what it has applied    goes on; asks again at the next one
//   open       of an older ask    claims it, by CAS, and gives            this ask, 1st attempt
//   open       of this ask        waits until it is overdue or dead,
//                                 then as above                           this ask, next attempt
//
// No rank waits for an asker, and an asker waits for no rank in particular. An offer is retracted
// when another takes its place, and when it is too old for the log; it stands when its owner
// leaves, or dies. A rank that has seen it stand serves that ask no more; an asker that finds it
// retracted asks once more. Its owner does not: it may be dead in between. Readers pin nothing:
// they copy to memory of their own and look whether the offer still stands. A member offers a
// version once, so that an offer which was retracted never stands again.
#ifndef COVEY_CORE_PARTIAL_SNAPSHOTS_H_
#define COVEY_CORE_PARTIAL_SNAPSHOTS_H_

#include <vector>

#include "core/base/kernels.h"
#include "core/partial/memory.h"

namespace covey {

struct Ask {
  uint64_t number = 0;   // of asks, modulo kNumbers
  uint64_t version = 0;  // of the latest, which is the highest; 0: none

  static constexpr int kVersionBits = 40;
  static constexpr uint64_t kNumbers = uint64_t{1} << (64 - kVersionBits);
  // REQUIRES: the numbers are less than half of kNumbers apart.
  static bool IsLater(uint64_t number, uint64_t other) {
    const uint64_t distance = (number - other) % kNumbers;
    return distance > 0 && distance < kNumbers / 2;
  }
  uint64_t Word() const { return number << kVersionBits | version; }
  static Ask Of(uint64_t word) {
    return {word >> kVersionBits, word & ((uint64_t{1} << kVersionBits) - 1)};
  }
};

// Member `member` sees to ask number `number`.
struct Claim {
  uint64_t number = 0;
  uint32_t attempt = 0;
  int32_t member = 0;

  static constexpr uint32_t kMostAttempts = 0xffff;
  uint64_t Word() const {
    return number << 32 | uint64_t{attempt} << 16 | static_cast<uint64_t>(member);
  }
  static Claim Of(uint64_t word) {
    return {word >> 32, static_cast<uint32_t>(word >> 16 & 0xffff),
            static_cast<int32_t>(word & 0xffff)};
  }
};

// The state after `version`, in `length_bytes` bytes; 0: the member has no room for it.
struct Offer {
  int32_t member = -1;
  uint64_t version = 0;
  uint64_t distance = 0, length_bytes = 0;
};

class Snapshots {
 public:
  // `overdue`: how long one that was claimed may take before another rank makes it.
  Snapshots(int32_t self, Time overdue, const RoundMemory* memory, SharedAtomics* words,
            const Kernels* kernels)
      : self_(self), overdue_(overdue), memory_(memory), words_(words), kernels_(kernels) {}

  // ---- Of a trainer that has applied all versions up to `applied`, between two steps.
  // Whether it is to give a snapshot of that now.
  bool IsAsked(uint64_t applied, const std::vector<bool>& lost, Time now);
  // Gives `parts`, one after the other, in `place`, which lies in this rank's own region, holds
  // them all, and is not changed until Retract. Without a place it says that there is no room.
  struct Part {
    const std::byte* data = nullptr;
    size_t length_bytes = 0;
  };
  void Give(uint64_t version, std::byte* place, std::span<const Part> parts);
  // This rank's offer cannot be used any more once this is true. Loads nothing.
  bool IsStale(uint64_t applied) const;
  void Retract();

  // ---- Of a trainer that needs one.
  // One that is later than `applied` and from which the log leads on: an offer that stands, or
  // else it asks for one, and `member` is -1.
  Offer Find(uint64_t applied, uint64_t executed);
  // Whether this rank looks for one. Loads nothing.
  bool IsInNeed() const { return need_ % 2 == 1; }
  // Odd while `member` looks for one itself; only grows.
  uint64_t NeedOf(int32_t member) const { return words_->Load(memory_->OfferAt(member) + 3); }
  // Whether one of `version`, or of a later one, stands.
  bool HasOffer(uint64_t version) const;
  // For one that will need it when it comes: of `version`, unless that is asked for already.
  void AskFor(uint64_t version);
  // Copies it; false: it was retracted meanwhile, and the copy is to be forgotten.
  bool Take(const Offer& offer, std::byte* to);

 private:
  // Of the word: the offer stands.
  static constexpr uint64_t kStands = 1;

  Offer OfferOf(int32_t member) const;
  bool SeesRetracted(const Ask& ask);
  void SetInNeed(bool is_in_need);

  int32_t self_;
  Time overdue_;
  const RoundMemory* memory_;
  SharedAtomics* words_;
  const Kernels* kernels_;
  uint64_t settled_ = 0;             // the ask that is served
  uint64_t seen_claim_ = 0;          // by another
  Time seen_claim_at_ = 0;           // for the first time
  uint64_t offered_ = 0;             // the version; 0: this rank offers nothing
  uint64_t need_ = 0;                // of this rank
  std::vector<uint64_t> retracted_;  // offers that were, as this rank has seen them, by member
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_SNAPSHOTS_H_
