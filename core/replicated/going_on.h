// A rank's part in going on from finish() without others (replicated-W26), beside its leader's
// (settlement.h): what it asks for, the state that it keeps for ranks that come later, and how such
// a rank drops its steps (partial-W8c, partial-W8d).
//
// Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_GOING_ON_H_
#define COVEY_CORE_REPLICATED_GOING_ON_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/counted_bytes.h"
#include "core/base/types.h"
#include "core/replicated/replicated_log.h"

namespace covey {

class GoingOn {
 public:
  // ---- A rank that goes on.
  // It has finished so often, and asks its leader; 0: it asks no more.
  void Ask(uint64_t times) { asks_ = times; }
  uint64_t asks() const { return asks_; }

  // The state of its trainer after a version, which its replica gives when the trainer has gone.
  struct State {
    uint64_t version = 0;  // 0: none
    Slice bytes;
  };
  // Its trainer is to give the state of that version, or of a later one.
  void WantState(uint64_t version) { wanted_ = version; }
  bool WantsState(uint64_t applied) const { return wanted_ > 0 && applied >= wanted_; }
  void Keep(State state) {
    state_ = std::move(state);
    wanted_ = 0;
  }
  const State& state() const { return state_; }

  // ---- A rank that comes later.
  // It has a step. Whether that is dropped, and counted: the others have ended without it.
  bool Drops(bool is_behind);
  void OnDropped(uint64_t steps) { dropped_ += steps; }
  uint64_t dropped() const { return dropped_; }
  // It waits for a version. Whether it has waited for long enough; see EpochEnd::IsLeftBehind.
  bool IsLeftBehind(bool is_behind) {
    waits_ = true;
    return is_behind ? is_over_ : is_held_back_;
  }
  // So much time has gone by. `are_any_there`: those that may train on. Returns when to look again.
  Time Wait(bool is_behind, bool are_any_there, Time max_wait, Time away, Time now);

  // ---- What replicas have told that leave.
  // As far as that one was: its no-op entry said that its last version was settled so.
  void OnLeave(const Progress& progress, uint64_t settled);
  // Accepts that, if the replica is as far and has accepted less.
  void Adopt(ReplicatedLog* log) const;

 private:
  uint64_t asks_ = 0;
  uint64_t wanted_ = 0;  // a state of which version; 0: none
  State state_;
  bool is_held_back_ = false;  // its last step was not published
  bool waits_ = false, is_over_ = false;
  Time waited_ = 0;
  uint64_t dropped_ = 0;  // steps of its own
  Progress left_;         // of those that have left with a settled version,
  uint64_t settled_ = 0;  // the furthest; 0: none has
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_GOING_ON_H_
