// The simulator of replicas (core/replicated): ranks that share no memory, with messages between
// them that take their time and now and then far longer than election_timeout, in order for each
// pair and in any order between pairs. A link may be cut for a while, one way or both. A rank may
// be stopped between any two messages it reads or sends, for a while, for ever, or killed, and a
// returned one finds its messages before it. One seed repeats a run. The rules are those of the
// simulator of rounds (round_simulation.h, 1-9), and:
//
//  1. No two replicas read different versions, whichever have led, stopped, come back, left, or
//     lead at once.
//  2. A contribution that no version has yet is in its rank's replica, once.
//  4. While a quorum of replicas runs (core/replicated/quorum.h), ranks that run finish: all with
//     the same versions, or they are told that those that have more have left, and no other has.
// 13. Once a rank that lives has gone on without others, no other version is made: a rank that
//     comes to finish() later ends with the same one (replicated-W26). Half of the seeds have such
//     ranks. No version has a step that a late rank drops (replicated-W27). Ranks that have gone
//     on keep the state that a late rank needs (replicated-W28).
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct HostVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t versions = 0, late = 0, merged = 0, stopped = 0, killed = 0;
  uint64_t expired = 0, overdue = 0, returned = 0, gave_up = 0;
  uint64_t terms = 0;        // beyond the first,
  uint64_t elections = 0;    // and those in which a replica came to lead
  uint64_t skipped = 0;      // times that a rank fell out of the log,
  uint64_t taken = 0;        // and went on from a snapshot
  uint64_t empty_steps = 0;  // steps with nothing to give
  uint64_t adopted = 0;      // versions that a leader had from an earlier one
  uint64_t abandoned = 0;    // attempts at a version
  uint64_t by_hub = 0;       // versions that were made with a hub
  uint64_t left = 0;         // ranks that left while others ran,
  uint64_t lacking = 0;      // and ranks that lack what others have taken along
  uint64_t settled = 0;      // ranks that went on without others,
  uint64_t rejoined = 0;     // those that ended later with the same version,
  uint64_t dropped = 0;      // and their steps that are in none
  uint64_t witness_votes = 0, witness_acceptances = 0;
};

// Runs one seed to its end; of so many ranks, where that is not 0.
HostVerdict RunHosts(uint64_t seed, int32_t size = 0);
// An even number of ranks, with a witness (host_witness.h) and cuts between halves of them.
HostVerdict RunHostsWithWitness(uint64_t seed);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_SIMULATION_H_
