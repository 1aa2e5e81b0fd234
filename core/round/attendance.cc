#include "core/round/attendance.h"

namespace covey {
namespace {

Attendance After(const Attendance& before, const Turn& turn, const Pick& pick, bool fresh) {
  Attendance after{.version = turn.version(), .missing = before.missing};
  if (fresh) {
    after.missing -= before.overdue() ? 1 : 0;
  } else if (pick.excused) {
    after.missing = 0;
  } else if (before.overdue() || turn.expired) {
    after.missing = Attendance::kUntilTrusted;
  }
  return after;
}

bool IsFresh(const RoundMemory& memory, const Turn& turn, int32_t member, const Pick& pick) {
  return pick.fate == Fate::kIn &&
         memory.Header(member, pick.buffer)->content.last >= turn.version();
}

}  // namespace

std::vector<Attendance> AttendanceAfter(const RoundMemory& memory, SharedWords* words,
                                        const Turn& turn, const std::vector<Pick>& picks) {
  std::vector<Attendance> all;
  for (int32_t i = 0; i < memory.size(); ++i) {
    const Pick& pick = picks[static_cast<size_t>(i)];
    const Attendance known = Attendance::Of(words->Load(memory.AttendanceAt(i)));
    const bool fresh = IsFresh(memory, turn, i, pick);
    all.push_back(known.version < turn.version() ? After(known, turn, pick, fresh) : known);
  }
  return all;
}

void Attend(const RoundMemory& memory, SharedWords* words, const Turn& turn,
            const std::vector<Pick>& picks) {
  for (int32_t i = 0; i < memory.size(); ++i) {
    const uint64_t before = words->Load(memory.AttendanceAt(i));
    const Attendance known = Attendance::Of(before);
    if (known.version >= turn.version()) continue;
    const Pick& pick = picks[static_cast<size_t>(i)];
    const bool fresh = IsFresh(memory, turn, i, pick);
    words->CompareExchange(memory.AttendanceAt(i), before, After(known, turn, pick, fresh).Word());
  }
}

}  // namespace covey
