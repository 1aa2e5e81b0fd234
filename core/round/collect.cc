#include "core/round/collect.h"

namespace covey {
namespace {

// What a member without a fate in `version` gets, its slot being `slot`.
Pick FirstFate(const SlotWord& slot, bool lost, bool finished, uint64_t version) {
  Pick pick{.version = version, .excused = lost || finished};
  if (slot.state != SlotState::kSealed) {
    pick.fate = lost ? Fate::kGone : Fate::kOut;
    return pick;
  }
  pick.fate = Fate::kAsked;
  pick.buffer = slot.buffer;
  pick.step = slot.step & ((uint64_t{1} << Pick::kStepBits) - 1);
  return pick;
}

// One member's; its version is another when `version` is over.
Pick Decide(const RoundMemory& memory, SharedWords* words, int32_t member, bool lost,
            uint64_t version) {
  uint64_t* at_slot = memory.SlotAt(member);
  uint64_t* at_pick = memory.PickAt(member);
  for (;;) {
    const uint64_t before = words->Load(at_slot);
    const Pick pick = Pick::Of(words->Load(at_pick));
    if (pick.version > version) return pick;
    if (pick.version == version && pick.fate != Fate::kAsked) return pick;
    if (words->Load(at_slot) != before) continue;
    const SlotWord slot = SlotWord::Of(before);
    Pick next = pick;
    if (pick.version < version) {
      const Standing standing{words->Load(memory.MemberAt(member))};
      next = FirstFate(slot, lost, standing.finished(), version);
    } else if (!pick.Names(slot) || slot.state == SlotState::kOpen) {
      next.fate = Fate::kOut;
    } else if (slot.state == SlotState::kTaken) {
      next.fate = Fate::kIn;
    } else {
      words->CompareExchange(at_slot, before,
                             SlotWord{SlotState::kTaken, slot.buffer, slot.step}.Word());
      continue;
    }
    words->CompareExchange(at_pick, pick.Word(), next.Word());
  }
}

}  // namespace

bool Collect(const RoundMemory& memory, SharedWords* words, const std::vector<bool>& lost,
             uint64_t version, std::vector<Pick>* picks) {
  picks->clear();
  for (int32_t i = 0; i < memory.size(); ++i) {
    picks->push_back(Decide(memory, words, i, lost[static_cast<size_t>(i)], version));
    if (picks->back().version != version) return false;
  }
  return true;
}

}  // namespace covey
