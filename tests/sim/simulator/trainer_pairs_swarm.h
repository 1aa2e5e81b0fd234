// The faults and settings that a seed of the simulator of trainers in pairs turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SWARM_H_

#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/base/rng.h"

namespace covey {

struct TrainerPairsSwarm {
  int32_t size = 2;
  std::string method;
  uint64_t steps = 1, epochs = 1;
  uint64_t settles = 0;         // bit e: epoch e ends with a settle()
  bool is_strict = true;        // finish()
  bool finishes_twice = false;  // without a step between
  uint64_t trains_on = 0;       // percent: after a wait in vain
  uint64_t switch_permille = 0, refusals_permille = 0, stops_permille = 0, looks_percent = 0;
  uint64_t slow_ranks = 0;  // bit r: runs rarely
  uint64_t most_killed = 0;
  // Where ranks are on several hosts: how many each host but the last has, and the network's faults
  // (InprocNetwork::Options).
  int32_t per_host = 1;
  Time longest_delay = 0, longest_clog = 0;
  uint64_t refusal_percent = 0;
  bool is_mixed = false;  // with other parts before the pairs, or after them

  // With that many ranks; 0: a few. `mixes`: see is_mixed. `is_far`: on several hosts.
  TrainerPairsSwarm(Rng* rng, int32_t ranks, bool mixes, bool is_far);
  std::string ToString() const;

 private:
  void Mix(Rng* rng, bool is_far);
  void AddPart(std::string part, uint64_t step);
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SWARM_H_
