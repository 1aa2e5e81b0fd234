// The simulator of circuits: whole runtimes in one process, over shared memory or over mirrors of
// it, whose devices do collectives among themselves (LateCircuits). Ranks of overlapping groups
// submit the same operations again and again, each in its own order, some waiting for one before
// they submit the next. One seed repeats a run. What must hold:
//
//  1. Every operation ends, and its result is right, over a circuit or staged; nothing is read
//     before the user's event.
//  2. Devices that do everything strictly in turn never stand still (agree-N12).
//  3. When a rank dies or a circuit fails every operation ends, as 1. has it or aborted, naming
//     the rank; and then no device touches its memory any more.
//  4. Where a rank has no library, two use one device or opening does not end, nothing is aborted.
//  5. Where nothing is wrong the last rounds go over circuits.
//  6. Some swarms have rooms in common: no exchange is void unless a rank dies or a circuit fails,
//     for who begins for a circuit says nothing of rooms.
#ifndef COVEY_TESTS_SIM_SIMULATOR_CIRCUIT_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_CIRCUIT_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct CircuitSimVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // what the seed turned on
  uint64_t hash = 0;    // of everything that happened
  // What came up, for tests that want it to.
  uint64_t done = 0, by_circuit = 0, again = 0, aborted = 0, mirrored = 0, without = 0, shared = 0,
           never_ready = 0, fails = 0, dies = 0, refused = 0, in_common = 0;
};

CircuitSimVerdict RunCircuits(uint64_t seed);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_CIRCUIT_SIMULATION_H_
