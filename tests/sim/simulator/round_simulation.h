// The simulator of rounds: the ranks of a host, each a fiber with the shipping round engine over
// words that are points, so that a rank may be left between any two, and in the middle of a copy, a
// sum or a tile; for a while, for ever, or killed. One seed repeats a run. Rules:
//
//  1. Versions end once each, in order (partial-W1).
//  2. Every step of every rank is in exactly one version, or still in its slot; a result is the sum
//     of what its record names (partial-W2, partial-W5), and all that read it get the same bytes
//     (partial-W6, partial-W10).
//  3. A version has as many fresh members as its admission asks for (partial-W4), unless it has
//     expired. Those with nothing to give (empty contributions) have come too, but are not summed
//     nor divided by (partial-W11).
//  4. Ranks that run finish, whichever others have stopped wherever: no rank waits for one that
//     does not count for admission (partial-W4, partial-W6), and with max_wait for any other
//     (partial-W8). With finish() nothing is left in any slot of a rank that runs.
//  5. Memory is bounded: result buffers do not run out (a CHECK in core/partial/log.cc).
//  6. A rank that was missing in a version that expired is overdue until it was fresh in three
//     versions running, and is not waited for until then (partial-W8); all that read a record agree
//     on it.
//  7. A rank that has fallen out of the log goes on from another one's snapshot, if there is one
//     that runs: what was applied to every model at equal version is equal (partial-W8,
//     partial-W10).
//  8. No contribution of a rank that is waited for ends before `staleness` versions ago
//      (partial-W9, T6).
//  9. A rank that skips ahead, or was overdue and has applied all there is, is not late at its next
//     step.
// 10. While all others run, two have not finished and nothing has expired, some rank can give a
//     snapshot (partial-W10).
// 11. No rank waits longer than max_wait for one rank while it stays behind its limit, in however
//     many versions (partial-W9).
// 12. A result that a rank reads in place stays as it was until the rank reads another
//     (partial-W10). Half of them do.
// 13. Once a rank that lives has gone on without others, a rank that comes to finish() later ends
//     with the same version; nothing that it does since is in one (partial-W8).
// 14. A contribution that it had published before they finished is in a version, though
//     (partial-W8).
#ifndef COVEY_TESTS_SIM_SIMULATOR_ROUND_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_ROUND_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct RoundVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t versions = 0, late = 0, merged = 0, stopped = 0, killed = 0, again = 0, gone = 0;
  uint64_t expired = 0, overdue = 0, returned = 0, gave_up = 0;
  uint64_t at_limit = 0;                         // a contribution is as old as it may be
  uint64_t skipped = 0;                          // steps between those of a contribution
  uint64_t given = 0, taken = 0, retracted = 0;  // snapshots; while it was read
  uint64_t empty_steps = 0;                      // steps with nothing to give
  uint64_t taken_back = 0;                       // contributions, by their rank for good
  uint64_t dropped = 0;                          // steps, since others had finished
  uint64_t rejoined = 0;                         // ranks that came to finish() then
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it, up to six.
RoundVerdict RunRounds(uint64_t seed, int32_t ranks = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_ROUND_SIMULATION_H_
