// The faults and settings that a seed of the simulator of trainers in pairs turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SWARM_H_

#include <cstdint>
#include <string>

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

  // With that many ranks; 0: a few.
  TrainerPairsSwarm(Rng* rng, int32_t ranks) {
    size = ranks > 0 ? ranks : static_cast<int32_t>(2 + rng->Below(5));
    const bool is_swarm = rng->Percent(50);
    method = is_swarm ? "swarm:H=" + std::to_string(1 + rng->Below(4)) : "adpsgd:";
    if (is_swarm && rng->Percent(40)) method += ",steps=geometric";
    if (is_swarm && rng->Percent(40)) method += ",exchange=nonblocking";
    if (!is_swarm) method += rng->Percent(50) ? "topology=ring" : "topology=full";
    method += ",seed=" + std::to_string(1 + rng->Below(9));
    method += ",max_wait=" + std::to_string(1 + rng->Below(4)) + "ms";
    steps = rng->Below(12);
    epochs = 1 + rng->Below(3);
    settles = rng->Next();
    finishes_twice = settles >> 62 == 0;
    is_strict = !rng->Percent(25);
    trains_on = rng->Percent(50) ? 30 : 0;
    constexpr uint64_t kSwitch[] = {5, 50, 300};
    switch_permille = kSwitch[rng->Below(3)];
    if (rng->Percent(40)) refusals_permille = 1 + rng->Below(100);
    if (rng->Percent(60)) stops_permille = 1 + rng->Below(20);
    if (rng->Percent(50)) looks_percent = 30;
    if (rng->Percent(50)) slow_ranks = rng->Next() & rng->Next();
    if (rng->Percent(30)) most_killed = rng->Below(static_cast<uint64_t>(size));
    Rng apart = *rng;
    per_host = static_cast<int32_t>(1 + apart.Below(static_cast<uint64_t>(size - 1)));
    longest_delay = static_cast<Time>(1 + apart.Below(200)) * kMicrosecond;
    if (apart.Percent(30)) longest_clog = static_cast<Time>(1 + apart.Below(3)) * kMillisecond;
    if (apart.Percent(30)) refusal_percent = 20;
  }

  std::string ToString() const {
    return std::to_string(size) + " ranks, " + method + ", steps " + std::to_string(steps) + " x " +
           std::to_string(epochs) + (is_strict ? "" : " not strict") +
           (finishes_twice ? " twice" : "") + ", settles " +
           std::to_string(settles & ((1u << epochs) - 1)) + ", trains on " +
           std::to_string(trains_on) + "%, switches " + std::to_string(switch_permille) +
           " permille, refused actions " + std::to_string(refusals_permille) + " permille, stops " +
           std::to_string(stops_permille) + " permille, killed " + std::to_string(most_killed);
  }
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_TRAINER_PAIRS_SWARM_H_
