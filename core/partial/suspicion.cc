#include "core/partial/suspicion.h"

namespace covey {
namespace {

// The step up to which a member has come in the version; 0: it is not there.
uint64_t StepOf(const RoundMemory& memory, int32_t member, const Inclusion& inclusion) {
  // partial-W11: an empty contribution says how far its owner has come: it is present.
  return inclusion.decision == Decision::kIn
             ? memory.Header(member, inclusion.buffer)->content.arrived
             : 0;
}

// Whether the version says anything about members that are overdue, and about one that has come to
// `step` in it that it keeps up.
bool Tells(const ModelRule& models, const StateWord& state) {
  // partial-W8a: of models, only versions of all judge: others take the first to come.
  return !models.on() || models.IsSync(state.version());
}
bool KeepsUp(const ModelRule& models, const StateWord& state, uint64_t step) {
  const bool may_end = models.ending > 0 && state.version() >= models.ending;  // then all are in it
  const uint64_t slack = models.on() && !may_end ? models.sync_every / 2 : 0;
  return step > 0 && step + slack >= state.version();
}

Suspicion After(const ModelRule& models, const Suspicion& before, const StateWord& state,
                const Inclusion& inclusion, uint64_t step) {
  Suspicion after{.version = state.version(), .missing = before.missing};
  if (before.overdue() && Tells(models, state) && KeepsUp(models, state, step)) {
    // partial-W8a: three fresh versions in a row, and the member is waited for again.
    --after.missing;
  } else if (inclusion.exempt) {
    after.missing = 0;
  } else if (before.overdue() ? Tells(models, state) : state.expired && step < state.version()) {
    // partial-W8a: not there when max_wait expired, or late again: overdue.
    after.missing = Suspicion::kUntilTrusted;
  }
  return after;
}

}  // namespace

std::vector<Suspicion> AttendanceAfter(const RoundMemory& memory, SharedAtomics* words,
                                       const StateWord& state,
                                       const std::vector<Inclusion>& inclusions) {
  std::vector<Suspicion> all;
  for (int32_t i = 0; i < memory.size(); ++i) {
    const Inclusion& inclusion = inclusions[static_cast<size_t>(i)];
    const Suspicion known = Suspicion::Of(words->Load(memory.SuspicionAt(i)));
    const uint64_t step = StepOf(memory, i, inclusion);
    const bool is_new = known.version < state.version();
    all.push_back(is_new ? After(memory.models(), known, state, inclusion, step) : known);
  }
  return all;
}

void UpdateSuspicion(const RoundMemory& memory, SharedAtomics* words, const StateWord& state,
                     const std::vector<Inclusion>& inclusions) {
  for (int32_t i = 0; i < memory.size(); ++i) {
    const uint64_t before = words->Load(memory.SuspicionAt(i));
    const Suspicion known = Suspicion::Of(before);
    // partial-W8a: the word carries its version, so each version is counted once.
    if (known.version >= state.version()) continue;
    const Inclusion& inclusion = inclusions[static_cast<size_t>(i)];
    const Suspicion after =
        After(memory.models(), known, state, inclusion, StepOf(memory, i, inclusion));
    words->CompareExchange(memory.SuspicionAt(i), before, after.Word());
  }
}

}  // namespace covey
