#include "core/partial/attendance.h"

namespace covey {
namespace {

// The step up to which a member has come in the version; 0: it is not there.
uint64_t StepOf(const RoundMemory& memory, int32_t member, const Pick& pick) {
  // partial-W11: a null says how far its owner has come: it is present.
  return pick.fate == Fate::kIn ? memory.Header(member, pick.buffer)->content.arrived : 0;
}

// Whether the version says anything about members that are overdue, and about one that has come to
// `step` in it that it keeps up.
bool Tells(const ModelRule& models, const Turn& turn) {
  // partial-W8a: of models, only versions of all judge: others take the first to come.
  return !models.on() || models.IsSync(turn.version());
}
bool KeepsUp(const ModelRule& models, const Turn& turn, uint64_t step) {
  const bool may_end = models.ending > 0 && turn.version() >= models.ending;  // then all are in it
  const uint64_t slack = models.on() && !may_end ? models.sync_every / 2 : 0;
  return step > 0 && step + slack >= turn.version();
}

Attendance After(const ModelRule& models, const Attendance& before, const Turn& turn,
                 const Pick& pick, uint64_t step) {
  Attendance after{.version = turn.version(), .missing = before.missing};
  if (before.overdue() && Tells(models, turn) && KeepsUp(models, turn, step)) {
    // partial-W8a: three fresh versions in a row, and the member is waited for again.
    --after.missing;
  } else if (pick.excused) {
    after.missing = 0;
  } else if (before.overdue() ? Tells(models, turn) : turn.expired && step < turn.version()) {
    // partial-W8a: not there when max_wait expired, or late again: overdue.
    after.missing = Attendance::kUntilTrusted;
  }
  return after;
}

}  // namespace

std::vector<Attendance> AttendanceAfter(const RoundMemory& memory, SharedAtomics* words,
                                        const Turn& turn, const std::vector<Pick>& picks) {
  std::vector<Attendance> all;
  for (int32_t i = 0; i < memory.size(); ++i) {
    const Pick& pick = picks[static_cast<size_t>(i)];
    const Attendance known = Attendance::Of(words->Load(memory.AttendanceAt(i)));
    const uint64_t step = StepOf(memory, i, pick);
    const bool is_new = known.version < turn.version();
    all.push_back(is_new ? After(memory.models(), known, turn, pick, step) : known);
  }
  return all;
}

void Attend(const RoundMemory& memory, SharedAtomics* words, const Turn& turn,
            const std::vector<Pick>& picks) {
  for (int32_t i = 0; i < memory.size(); ++i) {
    const uint64_t before = words->Load(memory.AttendanceAt(i));
    const Attendance known = Attendance::Of(before);
    // partial-W8a: the word carries its version, so each version is counted once.
    if (known.version >= turn.version()) continue;
    const Pick& pick = picks[static_cast<size_t>(i)];
    const Attendance after = After(memory.models(), known, turn, pick, StepOf(memory, i, pick));
    words->CompareExchange(memory.AttendanceAt(i), before, after.Word());
  }
}

}  // namespace covey
