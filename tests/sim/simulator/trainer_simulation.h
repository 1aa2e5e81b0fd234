// Whole trainings, as an adapter drives them, over simulated shared memory: core/train/trainer.h,
// core/engine/trainer_rounds.h and core/partial/rounds_port.h as they are shipped, with virtual
// models. Ranks stop for a while, are killed, run slowly, have unfit gradients, and fail to do an
// action.
//
// Checked:
//   1. Models are equal at equal version, on all ranks, whatever the way to it; by a method of
//      deltas the replicated arrays.
//   2. All living ranks that end one strict call of finish(), or one call of settle(), without a
//      loss are at the same version. At the end each gradient that was handed over counts once.
//   3. A version is applied once and in order: version() grows by one with each update, or jumps
//      with another rank's state, its delta, or its model.
//   4. A rank that runs comes to the end of its training.
//   5. Where rounds end, all ranks go on with the same step.
//   6. A step that ends with an error, or whose action was not done, is taken up where it was.
//   7. A finish() that ends with an error has applied all there is.
//   8. Where rounds of models follow those of gradients, all ranks go on with the same version, the
//      last one, whoever is overdue, and each gradient is in a version, or an update of its rank.
//   9. A trainer with an end comes to it on each rank that runs: by gradients after the same step
//      on all. Then 2 holds.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct TrainerVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t updates = 0, late = 0, killed = 0, stopped = 0, unfit = 0, refused = 0;
  uint64_t packed = 0, unpacked = 0, timeouts = 0, left = 0, finished = 0, settled = 0;
  uint64_t gathered = 0;            // strict ends of finish(), and of settle(), by all ranks
  uint64_t went_on = 0;             // ends of finish() without ranks that are missing
  uint64_t deltas = 0, models = 0;  // runs of a method of those
  uint64_t caught_up = 0;           // passes that began with versions of others
  uint64_t due = 0, not_made = 0;   // versions that were waited for before one; in vain
  uint64_t offered_again = 0;       // models, with progress that was kept
  uint64_t whole = 0;               // runs in which all gradients were counted
  uint64_t handed_over = 0;       // ranks that went on from rounds of gradients to rounds of models
  uint64_t handed_late = 0;       // of these: though a rank was overdue,
  uint64_t handed_in_finish = 0;  // in finish(),
  uint64_t handed_in_pass = 0;    // before a step
  uint64_t withdrawn = 0;         // contributions that became updates of their rank alone
  uint64_t left_states = 0;       // states that were left there for ranks that come later,
  uint64_t found_states = 0;      // and such ones that were found
  uint64_t went_further = 0;      // ranks that have left the rounds of models after them
  uint64_t over = 0;              // trainers that have come to their end,
  uint64_t over_local = 0;        // of these: in rounds in which ranks have updates of their own,
  uint64_t over_in_finish = 0;    // and in finish()
  uint64_t handed_whole = 0;      // runs in which all these gradients were counted
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it, up to five.
TrainerVerdict RunTrainers(uint64_t seed, int32_t ranks = 0);
// The same of ranks that share no memory: core/replicated/replica_port.h as it is shipped, over a
// network whose messages take their time.
TrainerVerdict RunHostTrainers(uint64_t seed, int32_t ranks = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_SIMULATION_H_
