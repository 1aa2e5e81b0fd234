// The faults and settings that a seed of the simulator of rounds of models turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_MODEL_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_MODEL_SWARM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/partial/rounds.h"

namespace covey {

struct ModelSwarm {
  int32_t size, log;
  ModelRule models;
  AdmissionRule admission;
  Time overdue, max_wait;
  std::vector<RoundSpan> spans;
  std::vector<uint64_t> steps;  // by rank
  uint64_t switch_permille;
  uint64_t slow_ranks;                                   // bit r: runs rarely
  uint64_t stops_permille;                               // of resumes: a rank stops for a while
  uint64_t most_stopped, most_killed, strikes_permille;  // for ever
  int epochs;                                            // of so many steps, each with its end
  uint64_t looks_percent;  // of steps after which a rank looks at another's model

  static ModelSwarm Draw(Rng* rng, int32_t ranks);
  std::string ToString() const;
};

// `ranks`: 0: drawn too.

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_MODEL_SWARM_H_
