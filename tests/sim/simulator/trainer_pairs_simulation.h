// Whole trainings in pairs, as an adapter drives them, over simulated shared memory:
// core/train/trainer.h, core/engine/trainer_pairs.h and core/gossip/gossip_port.h as they are
// shipped, with virtual models. Ranks stop for a while, are killed, run slowly, fail to do an
// action, train on while they wait in vain for the others, and look at each other's models.
//
// Each epoch ends with a finish(), or with a settle() as before a checkpoint.
//
// Checked, where no rank was killed and finish() was strict:
//   1. After finish() all ranks have one model, bit for bit: what they began with and the mean of
//      all that was learnt. Where it is not strict: those that have not gone on without others.
//   2. After settle() the sum of the models is that of what they began with and all that was
//      learnt; may_differ() says that they differ.
// In any case:
//   3. A model that is seen whole is of one moment: all its elements belong together.
//   4. version() grows by one with each update, and an action that was not done comes again.
//   5. A rank that runs comes to the end of its training, and no step in pairs waits for another
//      rank.
// Where pairs are one part of several, which go in rounds of whatever kind or wait for all:
//   6. All ranks begin pairs with one model, and end them with one, at the same version.
//   7. At their end it is the mean: the model that they began with and all that was learnt since.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct TrainerPairsVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t updates = 0, begun = 0, met = 0, killed = 0, stopped = 0, refused = 0;
  uint64_t timeouts = 0, trained_on = 0, went_on = 0, ended_later = 0, finished = 0, settled = 0;
  uint64_t finished_again = 0;
  uint64_t seen = 0, changed_meanwhile = 0, whole = 0;
  // Other parts: ranks that have begun and ended pairs, that took another one's state, or took back
  // what no version had, and ends of waits by the trainer's own deadline.
  uint64_t entered = 0, quitted = 0, unpacked = 0, withdrawn = 0, ticks = 0;
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it, up to six.
TrainerPairsVerdict RunTrainersInPairs(uint64_t seed, int32_t ranks = 0);
// The same of ranks on several hosts: core/gossip/hosts_port.h and core/replicated/replica_port.h
// as they are shipped, over a network whose messages take their time.
TrainerPairsVerdict RunHostTrainersInPairs(uint64_t seed, int32_t ranks = 0);
// The same with other parts of the training before the pairs, or after them.
TrainerPairsVerdict RunTrainersInParts(uint64_t seed);
TrainerPairsVerdict RunHostTrainersInParts(uint64_t seed);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SIMULATION_H_
