// The faults and settings that a seed of the simulator of pairs turns on.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PAIR_SWARM_H_
#define COVEY_TESTS_SIM_SIMULATOR_PAIR_SWARM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/gossip/steps.h"
#include "core/partial/layout.h"

namespace covey {

// The codec of a text for the models of pairs; "": none.
PairCodec ParsePairCodec(const std::string& text);

struct PairSwarm {
  int32_t size;
  std::vector<RoundSpan> spans;
  std::vector<uint64_t> steps;  // by rank
  uint64_t exchange_percent;    // of steps
  bool half_ask;                // even ranks alone begin exchanges
  bool by_rule;                 // steps are those of GossipSteps; else all are pushed, at random
  PairRule rule;
  int tries;  // of an exchange that finds a model busy
  uint64_t switch_permille;
  uint64_t slow_ranks;      // bit r: runs rarely
  uint64_t stops_permille;  // of resumes: a rank stops for a while
  bool stops_at_words;      // likewise, where a word is read or written
  uint64_t most_stopped, most_killed, strikes_permille;  // for ever
  bool keeps_own;                                        // at the end of an epoch; else the mean
  bool gives_up;                                         // some trains on while others finish
  int epochs;                                            // of so many steps, each with its end
  std::string codec;                                     // its text; empty: none

  // `ranks` 0: as the seed has it.
  static PairSwarm Draw(Rng* rng, int32_t ranks);
  PairCodec Codec() const { return ParsePairCodec(codec); }
  // A number is coded whatever lies beside it.
  bool KeepsEqual() const { return codec.find("block") == codec.npos && codec != "int8@16"; }
  std::string ToString() const;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PAIR_SWARM_H_
