// The simulator of averaging with neighbors: whole runtimes in one process, over shared memory or
// over mirrors of it, whose ranks submit the same few streams again and again, each time with other
// peers and weights, in any order. One seed repeats a run. Rules:
//
//  1. A rank's result is the sum, in rank order and in float32, of its own weights times the inputs
//     of the ranks it names, bit for bit; inputs are left as they were.
//     With a codec: what it has handed in, moved by the sum of its weights times the differences
//     of what the codec makes of the two; nothing at all where all have handed in the same.
//  2. When ranks do not say the same of each other, or a rank's own row is refused, the operation
//     fails on every rank with one text that names them, outputs are left as they were, and the
//     next one works.
//  3. As long as all agree no rank asks the coordinator, however peers change.
//  4. After a rank has died every operation of the others ends: as 1. has it, or aborted.
#ifndef COVEY_TESTS_SIM_SIMULATOR_NEIGHBOR_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_NEIGHBOR_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct NeighborVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t done = 0, conflicts = 0, refused = 0, aborted = 0, mirrored = 0, unread = 0, open = 0,
           coded = 0;
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it, up to seven.
NeighborVerdict RunNeighbors(uint64_t seed, int32_t ranks = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_NEIGHBOR_SIMULATION_H_
