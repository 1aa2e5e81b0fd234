// The simulator of rounds of models: like round_simulation.h, with ranks that train as WAGMA-SGD
// has it. One seed repeats a run. Rules:
//
//  1. Versions end once each, in order, and are not changed afterwards (partial-W1, partial-W10).
//  2. A version has of every member the newest model it had offered when the version fired, or a
//     newer one; each group's result is their mean, in rank order, bit for bit (partial-W2,
//     partial-W5, partial-W12).
//  3. A rank has after its step the mean of its group, if its own model was in it, else
//     (count * mean + own) / (count + 1), bit for bit (partial-W6); if a version of all has passed
//     it by the mean, and what it has done since it began from one unless a version has had that.
//     In the end the mean alone if others have gone on with that, and it was missing.
//  4. Versions wait for as many as the admission says, and every so-many-th for all that are
//     waited for, unless it has expired; suspicion is what the versions of all show (partial-W4,
//     partial-W8).
//  5. Ranks that run finish, whichever others have stopped wherever; where all do, with one model
//      (partial-W8).
//  6. No model is in a version that is older than the last version of all before it, nor does a
//     rank superseded by it go on from before it.
//  7. No rank waits longer than max_wait for a slow one, in however many versions of all
//     (partial-W9; model_patience.h).
//  8. A rank that looks at the model of another reads a published one, whole, or is told that there
//     is none: nothing that is half of one and half of the next.
//  9. Once a rank that lives has gone on from a final version without others, no other is made
//     (none trains on here), and a rank that comes to finish() later ends with it (partial-W8).
#ifndef COVEY_TESTS_SIM_SIMULATOR_MODEL_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_MODEL_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct ModelVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t versions = 0, passive = 0, again = 0, late = 0, old = 0, syncs = 0, finals = 0;
  uint64_t stopped = 0, killed = 0, overdue = 0, returned = 0, gave_up = 0, equal = 0, newer = 0;
  uint64_t jumps = 0, anew = 0, kept = 0, taken = 0, looks = 0, torn = 0, dropped = 0;
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it.
ModelVerdict RunModels(uint64_t seed, int32_t ranks = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MODEL_SIMULATION_H_
