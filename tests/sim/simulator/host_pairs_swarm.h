// The faults and settings that a seed of the simulator of pairs between hosts turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_PAIRS_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_PAIRS_SWARM_H_

#include <cstdint>
#include <iterator>
#include <string>

#include "core/base/rng.h"
#include "core/gossip/steps.h"

namespace covey {

struct HostPairsSwarm {
  int32_t size = 2, per_host = 1;  // each host but the last has so many
  PairRule rule;
  Time max_wait = 0;
  uint64_t steps = 1, epochs = 1;
  uint64_t settles = 0;            // bit e: epoch e ends with a settle
  uint64_t trains_on_percent = 0;  // after a wait in vain
  uint64_t goes_on_percent = 0;    // likewise: the epoch is over for that rank
  uint64_t switch_permille = 0, stops_permille = 0;
  uint64_t slow_ranks = 0;                  // bit r: runs rarely
  uint64_t most_gone = 0, most_killed = 0;  // stopped for ever; killed
  Time longest_delay = 0, longest_clog = 0;
  uint64_t refusal_percent = 0;
  std::string codec;  // of what a model has in float32; empty: none, and nothing is

  // With that many ranks; 0: a few.
  HostPairsSwarm(Rng* rng, int32_t ranks) {
    size = ranks > 0 ? ranks : static_cast<int32_t>(2 + rng->Below(5));
    // All on one host would share memory.
    per_host = static_cast<int32_t>(1 + rng->Below(static_cast<uint64_t>(size - 1)));
    rule.topology.size = size;
    rule.topology.seed = rng->Next();
    do rule.topology.kind = kPairKinds[rng->Below(kNumPairKinds)];
    while (!CheckPairs(rule.topology).ok());
    rule.all_begin = rng->Percent(60);
    rule.local_steps = static_cast<int64_t>(1 + rng->Below(3));
    rule.is_random = rng->Percent(30);
    rule.non_blocking = rng->Percent(50);
    max_wait = static_cast<Time>(2 + rng->Below(10)) * kMillisecond;
    steps = rng->Below(16);
    epochs = 1 + rng->Below(3);
    settles = rng->Next() & rng->Next();
    trains_on_percent = rng->Percent(50) ? 30 : 0;
    constexpr uint64_t kSwitch[] = {5, 50, 300};
    switch_permille = kSwitch[rng->Below(3)];
    if (rng->Percent(60)) stops_permille = 1 + rng->Below(20);
    if (rng->Percent(50)) slow_ranks = rng->Next() & rng->Next();
    if (rng->Percent(20)) most_gone = 1;
    if (rng->Percent(25)) most_killed = rng->Below(static_cast<uint64_t>(size));
    longest_delay = static_cast<Time>(1 + rng->Below(400)) * kMicrosecond;
    if (rng->Percent(40)) longest_clog = static_cast<Time>(1 + rng->Below(3)) * kMillisecond;
    if (rng->Percent(40)) refusal_percent = 20;
    constexpr const char* kCodecs[] = {"lattice@4", "lattice@8", "lattice@16",     "bf16",
                                       "fp16",      "int8@16",   "qsgd@8+block=16"};
    // Not drawn: what seeds are known for stays.
    const uint64_t number = rule.topology.seed % (3 * std::size(kCodecs));
    if (number < std::size(kCodecs)) codec = kCodecs[number];
    Rng apart(~rule.topology.seed);
    if (apart.Percent(30)) rule.topology.cross_every = static_cast<int64_t>(2 + apart.Below(3));
    if (trains_on_percent == 0 && apart.Percent(50)) goes_on_percent = 50;
    for (int32_t r = 0; r < size; ++r) rule.topology.hosts.push_back(r / per_host);
  }

  std::string ToString() const {
    return std::to_string(size) + " ranks, " + std::to_string(per_host) + " to a host, " +
           NameOf(rule.topology.kind) + (rule.all_begin ? "" : ", one of two begins") +
           ", between hosts every " + std::to_string(rule.topology.cross_every) + ", H " +
           std::to_string(rule.local_steps) + (rule.is_random ? " at random" : "") +
           (rule.non_blocking ? ", copies" : "") + ", steps " + std::to_string(steps) + " x " +
           std::to_string(epochs) + ", settles " + std::to_string(settles & ((1u << epochs) - 1)) +
           ", trains on " + std::to_string(trains_on_percent) + "%, goes on " +
           std::to_string(goes_on_percent) + "%, stops " + std::to_string(stops_permille) +
           " permille, for ever " + std::to_string(most_gone) + ", killed " +
           std::to_string(most_killed) + ", delays " +
           std::to_string(longest_delay / kMicrosecond) + " us" + (codec.empty() ? "" : ", ") +
           codec;
  }
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_PAIRS_SWARM_H_
