// The simulator of replicas (host_simulation.h) with ranks that average models: the same links and
// faults. The rules are those of the simulator of rounds of models (model_simulation.h), and:
//
//  1. All replicas that know a version have its record, alike. Each has the mean of its own group,
//     that of the record, bit for bit, or none (replicated-W20).
//  3. Where a replica has no mean of its group the rank's own model stands.
//  4. While a quorum of replicas runs, ranks that run finish; where all have the final mean, with
//     one model.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_MODEL_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_MODEL_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct HostModelVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t versions = 0, grouped = 0, syncs = 0, finals = 0, late = 0, anew = 0, kept = 0;
  uint64_t again = 0, passive = 0, overdue = 0, returned = 0, gave_up = 0, equal = 0, newer = 0;
  uint64_t stopped = 0, killed = 0, elections = 0, abandoned = 0, adopted = 0, left = 0;
  uint64_t settled = 0, rejoined = 0, dropped = 0;  // see HostVerdict
  uint64_t taken = 0;   // final means that a rank which is not in them ends with
  uint64_t absent = 0;  // means that a replica could not get
  uint64_t by_hub = 0;  // versions of which a hub has handed on pieces
};

// Runs one seed to its end; of so many ranks, where that is not 0.
HostModelVerdict RunHostModels(uint64_t seed, int32_t size = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_MODEL_SIMULATION_H_
