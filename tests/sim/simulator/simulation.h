// The deterministic simulator: N complete runtimes in one process, under a virtual clock, driven by
// one seed. The shipped code runs; only the transport and the clock are the simulator's.
//
// Every rank is a fiber that plays its process: it submits and waits as its program says, drives
// RunOnce, sleeps when there is nothing to do and is woken by peers, mail or a deadline, just as
// core/engine/engine.h does it. Every use of the transport is a point where another rank may go on,
// in the middle of a pass. Faults are drawn in swarm.h; the rules are checked here, in journal.h
// and in payload.h:
//
//  1. Results are right, and equal bit for bit on all members; each operation ends once, its
//     callback runs once.
//  2. An operation fails only if a member deviated, died, or has no memory left; on all members
//     alike unless one died. Then inputs are whole, and the next operation of the stream works.
//  3. No rank touches the memory of an operation that has ended.
//  4. No rank sleeps until its deadline while there is something to do.
//  5. Once faults have ended everything ends; at rest nothing is unanswered, no landing space is
//     lost, and the members' channels stand alike.
#ifndef COVEY_TESTS_SIM_SIMULATOR_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_SIMULATION_H_

#include <string>

#include "tests/sim/simulator/journal.h"
#include "tests/sim/simulator/swarm.h"

namespace covey {

struct Verdict {
  uint64_t seed = 0;
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  uint64_t steps = 0;
  Tally tally;
};

// Runs one seed to its end. `trace` prints what happens to stderr.
Verdict RunSeed(uint64_t seed, bool trace = false, Focus focus = Focus::kNone);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_SIMULATION_H_
