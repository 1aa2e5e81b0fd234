// The simulator of models that are averaged in pairs: the ranks of a host, each a fiber with the
// shipping code over words that are points, so that a rank may be left between any two, and in the
// middle of a copy or a sum; for a while, for ever, or killed. One seed repeats a run. Rules:
//
//  1. At any point the sum of all models is that of the first ones and of all progress that was
//     pushed, each once; models change by their own rank's progress, or two at once to their
//     mean, bit for bit.
//  2. A buffer that a model word names is not written.
//  3. Ranks that run end every call, whichever others have stopped wherever; an exchange in which
//     no other rank runs is not refused as busy.
//  4. A rank trains on what it has published.
//  5. After finish() all that have finished have the mean of all models, bit for bit, and go on.
//     A rank that gives up finishing trains on with all, or, when all had finished, from that mean.
//  6. Progress is pushed after as many steps as the rule says, and the rest of it by finish().
//  7. A rank that begins an exchange has pushed its last steps before it, or of copies, after it.
//  8. With a codec two models change to what is less than half a step from their mean, and their
//     sum stays; what could not be decoded becomes their mean.
//  9. Likewise with one of a scale of its own, within what its two errors are. Equal numbers of two
//     models stay, but where a block has a scale that other numbers make.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PAIR_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_PAIR_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct PairVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t updates = 0, merged = 0, exchanges = 0, busy = 0, no_buffers = 0, absent = 0;
  uint64_t batches = 0, undecided = 0, stopped = 0, killed = 0, equal = 0, epochs = 0, looks = 0,
           torn = 0, coded = 0, decoded = 0, repaired = 0, gave_up = 0, came_too_late = 0;
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it, up to six.
PairVerdict RunPairs(uint64_t seed, int32_t ranks = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PAIR_SIMULATION_H_
