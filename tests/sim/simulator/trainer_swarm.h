// The faults and settings that a seed of the simulator of trainers turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_SWARM_H_

#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/base/types.h"
#include "core/method/method.h"

namespace covey {

struct TrainerSwarm {
  int32_t size;
  std::string method;
  uint64_t steps;  // before each finish(), of which there are `finishes`
  uint64_t finishes;
  bool has_next;        // the rounds end, and another part follows
  bool hands_over;      // rounds of gradients end, and those of models follow
  int64_t end;          // of the trainers; kForever: they have none
  bool ends_at_once;    // a rank whose trainer is over does not end it by finish()
  Payload payload;      // of its rounds; of a method with a warm-up: after that
  int64_t local_steps;  // of deltas
  bool goes_on;         // finish() is not strict,
  bool gathers;         // and a strict one follows at once
  bool settles;         // every second one is a settle()
  uint64_t switch_permille;
  uint64_t unfit_permille;     // of steps
  uint64_t refusals_permille;  // of actions: not done at first
  uint64_t slow_ranks;         // bit r: runs rarely
  uint64_t stops_permille;     // of resumes: a rank stops for a while
  uint64_t most_killed;
  bool begins_passes;  // ranks catch up before they compute gradients
  // The network's, where ranks share no memory: see InprocNetwork::Options.
  Time longest_delay, longest_clog;
  uint64_t refusal_percent;

  // With that many ranks; 0: a few. `is_far`: they share no memory.
  static TrainerSwarm Draw(Rng* rng, int32_t ranks, bool is_far);
  std::string ToString() const;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_SWARM_H_
