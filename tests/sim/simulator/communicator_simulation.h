// The simulator of communicators: whole runtimes in one process, over shared memory or over mirrors
// of it, whose devices do collectives among themselves (LateCommunicators). Ranks of overlapping
// groups submit the same operations again and again, each in its own order, some waiting for one
// before they submit the next. One seed repeats a run. Rules:
//
//  1. Every operation ends, and its result is right, over a communicator or staged; nothing is read
//     before the user's event.
//  2. Devices that do everything strictly in turn never stand still (agree-N12).
//  3. When a rank dies or a communicator fails every operation ends, as 1. has it or aborted,
//     naming the rank; and then no device touches its memory any more.
//  4. Where a rank has no library, two use one device or opening does not end, nothing is aborted.
//  5. Where nothing is wrong the last rounds go over communicators.
//  6. Some swarms go by IPC: no exchange is void unless a rank dies or a communicator
//     fails, for a rank that begins for a communicator says nothing of buffers.
#ifndef COVEY_TESTS_SIM_SIMULATOR_COMMUNICATOR_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_COMMUNICATOR_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct CommunicatorSimVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t done = 0, by_communicator = 0, again = 0, aborted = 0, mirrored = 0, without = 0,
           shared = 0, never_ready = 0, fails = 0, dies = 0, refused = 0, by_ipc = 0;
};

CommunicatorSimVerdict RunCommunicators(uint64_t seed);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_COMMUNICATOR_SIMULATION_H_
