// The faults and settings that a seed of the simulator of rounds turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_ROUND_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_ROUND_SWARM_H_

#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/partial/rounds.h"

namespace covey {

struct RoundSwarm {
  int32_t size, log;
  bool skips_ahead;
  AdmissionRule admission;
  Time overdue, snapshot_overdue, max_wait;
  std::vector<RoundSpan> spans;
  std::vector<uint64_t> steps;  // by rank
  uint64_t switch_permille;
  uint64_t empty_permille;                               // of steps
  uint64_t retractions_permille;                         // of steps: what is left over afterwards
  uint64_t slow_ranks;                                   // bit r: runs rarely
  uint64_t stops_permille;                               // of resumes: a rank stops for a while
  uint64_t most_stopped, most_killed, strikes_permille;  // for ever

  // With that many ranks; 0: a few.
  static RoundSwarm Draw(Rng* rng, int32_t ranks);
  void DrawLaggards(Rng* rng);
  std::string ToString() const;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_ROUND_SWARM_H_
