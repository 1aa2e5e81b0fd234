// How long ranks that run wait for ranks of other hosts that are silent for a while: a rank that is
// stopped, a host that is unplugged, or a link between two ranks that do not lead.
//
// All ranks train: they compute for about a step, publish, wait for their version and take it. Time
// is simulated. Links are as TCP has them: what is sent over one that is cut goes again after
// 0.2, 0.6, 1.4, 3.0 s and so on, and what follows waits behind it. So the links of a host that is
// back come back one by one. A process that waits looks at its replica 50 times a second, as
// trainers do (COVEY_RECHECK), or when a message comes.
//
// With the pace of diloco ranks exchange changes after several steps, wait for longer, and take
// their time for long contributions; most of the faults begin amid an attempt at a version.
//
// The network is fast, so a bound is exact: the longest step of a rank that runs takes max_wait or
// election_timeout, whichever is less, a step, a look and the messages of a version.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_SILENCE_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_SILENCE_H_

#include <cstdint>
#include <string>

#include "core/base/types.h"

namespace covey {

enum class SilentFault : uint8_t { kStop, kUnplug, kCutOneWay, kCutBothWays };
enum class SilentMethod : uint8_t {
  kGradients,
  kModels,
  kDeltas  // gradients with the pace of diloco
};

struct SilenceVerdict {
  std::string failure;  // empty: no step of a rank that runs was longer than the bound, and no
                        // piece of a rank that was stopped went by a hub
  std::string swarm;    // the fault of the seed
  uint64_t hash = 0;    // of all steps
  Time longest = 0;     // step of the ranks that run
  Time lost = 0;        // beyond the usual length of steps, by the rank that has lost most
  Time bound = 0;       // of `longest`
  uint64_t versions = 0, by_hub = 0, abandoned = 0, terms = 0;
};

// Four hosts of two ranks each.
SilenceVerdict RunHostSilence(uint64_t seed, SilentMethod method, SilentFault fault);
// Both drawn.
SilenceVerdict RunHostSilence(uint64_t seed);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_SILENCE_H_
