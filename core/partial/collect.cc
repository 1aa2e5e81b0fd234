#include "core/partial/collect.h"

namespace covey {
namespace {

// What is known of a member besides its slot.
struct Owner {
  bool lost, finished;
};

bool IsOffered(const ModelRule& models, const Turn& turn, const SlotWord& slot,
               const Owner& owner) {
  // partial-W14: a gradient that a dead member has sealed still counts, once.
  if (!models.on()) return slot.state == SlotState::kSealed;
  if (slot.state == SlotState::kOpen) return false;
  // partial-W14: a model of a dead member counts in one version, not in later ones too.
  if (owner.lost && slot.state == SlotState::kTaken) return false;
  // partial-W12: a model that a version of all has passed by is not averaged any more.
  return (turn.final && owner.finished) || !models.IsTooOld(slot.step, turn.version());
}

// What a member without a fate gets, its slot being `slot`.
Pick FirstFate(const ModelRule& models, const Turn& turn, const SlotWord& slot,
               const Owner& owner) {
  Pick pick{.version = turn.version(), .excused = owner.lost || owner.finished};
  if (!IsOffered(models, turn, slot, owner)) {
    pick.fate = owner.lost ? Fate::kGone : Fate::kOut;
    return pick;
  }
  pick.fate = Fate::kAsked;
  pick.buffer = slot.buffer;
  pick.step = slot.step & ((uint64_t{1} << Pick::kStepBits) - 1);
  return pick;
}

// One member's; its version is another when that of `turn` is over.
Pick Decide(const RoundMemory& memory, SharedAtomics* words, int32_t member, bool lost,
            const Turn& turn) {
  const uint64_t version = turn.version();
  const ModelRule& models = memory.models();
  uint64_t* at_slot = memory.SlotAt(member);
  uint64_t* at_pick = memory.PickAt(member);
  for (;;) {
    const uint64_t before = words->Load(at_slot);
    const Pick pick = Pick::Of(words->Load(at_pick));
    // partial-W5: a later pick says that this version is over.
    if (pick.version > version) return pick;
    if (pick.version == version && pick.fate != Fate::kAsked) return pick;
    // partial-W5: the slot is seen before and after the pick, or a taken one looks unsealed.
    if (words->Load(at_slot) != before) continue;
    const SlotWord slot = SlotWord::Of(before);
    Pick next = pick;
    // partial-W2a: the owner has replaced the model that was asked for: the newer one is asked for.
    if (pick.version < version || (models.on() && !pick.Names(slot))) {
      const MemberStatus status{words->Load(memory.MemberAt(member))};
      next = FirstFate(models, turn, slot, {.lost = lost, .finished = status.finished()});
    } else if (!pick.Names(slot) || slot.state == SlotState::kOpen) {
      // partial-W2: the owner took its seal back before it was collected.
      next.fate = Fate::kOut;
    } else if (slot.state == SlotState::kTaken) {
      next.fate = Fate::kIn;
    } else {
      words->CompareExchange(at_slot, before,
                             SlotWord{SlotState::kTaken, slot.buffer, slot.step}.Word());
      continue;
    }
    // partial-W5: the exchange decides: the pick is read again, whoever has written it.
    words->CompareExchange(at_pick, pick.Word(), next.Word());
  }
}

}  // namespace

bool Collect(const RoundMemory& memory, SharedAtomics* words, const std::vector<bool>& lost,
             const Turn& turn, std::vector<Pick>* picks) {
  picks->clear();
  for (int32_t i = 0; i < memory.size(); ++i) {
    picks->push_back(Decide(memory, words, i, lost[static_cast<size_t>(i)], turn));
    if (picks->back().version != turn.version()) return false;
  }
  return true;
}

}  // namespace covey
