#include "core/partial/collect.h"

namespace covey {
namespace {

// A member's state besides its slot.
struct Owner {
  bool lost, finished;
};

bool IsOffered(const ModelRule& models, const StateWord& state, const SlotWord& slot,
               const Owner& owner) {
  // partial-W14: a gradient that a dead member has published still counts, once.
  if (!models.on()) return slot.state == SlotState::kPublished;
  if (slot.state == SlotState::kOpen) return false;
  // partial-W14: a model of a dead member counts in one version, not in later ones too.
  if (owner.lost && slot.state == SlotState::kTaken) return false;
  // partial-W12: a model that a version of all has superseded is not averaged any more.
  return (state.final && owner.finished) || !models.IsTooOld(slot.step, state.version());
}

// The decision for a member that has none, whose slot is `slot`.
Inclusion FirstDecision(const ModelRule& models, const StateWord& state, const SlotWord& slot,
                        const Owner& owner) {
  Inclusion inclusion{.version = state.version(), .exempt = owner.lost || owner.finished};
  if (!IsOffered(models, state, slot, owner)) {
    inclusion.decision = owner.lost ? Decision::kGone : Decision::kOut;
    return inclusion;
  }
  inclusion.decision = Decision::kAsked;
  inclusion.buffer = slot.buffer;
  inclusion.step = slot.step & ((uint64_t{1} << Inclusion::kStepBits) - 1);
  return inclusion;
}

// One member's; its version is another when that of `state` is over.
Inclusion Decide(const RoundMemory& memory, SharedAtomics* words, int32_t member, bool lost,
                 const StateWord& state) {
  const uint64_t version = state.version();
  const ModelRule& models = memory.models();
  uint64_t* at_slot = memory.SlotAt(member);
  uint64_t* at_pick = memory.InclusionAt(member);
  for (;;) {
    const uint64_t before = words->Load(at_slot);
    const Inclusion inclusion = Inclusion::Of(words->Load(at_pick));
    // partial-W5: a later inclusion says that this version is over.
    if (inclusion.version > version) return inclusion;
    if (inclusion.version == version && inclusion.decision != Decision::kAsked) return inclusion;
    // partial-W5: the slot is seen before and after the inclusion, or a taken one looks
    // unpublished.
    if (words->Load(at_slot) != before) continue;
    const SlotWord slot = SlotWord::Of(before);
    Inclusion next = inclusion;
    // partial-W2a: the owner has replaced the model that was asked for: the newer one is asked for.
    if (inclusion.version < version || (models.on() && !inclusion.Names(slot))) {
      const MemberStatus status{words->Load(memory.MemberAt(member))};
      next = FirstDecision(models, state, slot, {.lost = lost, .finished = status.finished()});
    } else if (!inclusion.Names(slot) || slot.state == SlotState::kOpen) {
      // partial-W2: the owner took its publication back before it was collected.
      next.decision = Decision::kOut;
    } else if (slot.state == SlotState::kTaken) {
      next.decision = Decision::kIn;
    } else {
      words->CompareExchange(at_slot, before,
                             SlotWord{SlotState::kTaken, slot.buffer, slot.step}.Word());
      continue;
    }
    // partial-W5: the exchange decides: the inclusion is read again, for any member may write it.
    words->CompareExchange(at_pick, inclusion.Word(), next.Word());
  }
}

}  // namespace

bool Collect(const RoundMemory& memory, SharedAtomics* words, const std::vector<bool>& lost,
             const StateWord& state, std::vector<Inclusion>* inclusions) {
  inclusions->clear();
  for (int32_t i = 0; i < memory.size(); ++i) {
    inclusions->push_back(Decide(memory, words, i, lost[static_cast<size_t>(i)], state));
    if (inclusions->back().version != state.version()) return false;
  }
  return true;
}

}  // namespace covey
