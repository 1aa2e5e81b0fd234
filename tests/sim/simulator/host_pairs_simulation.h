// Ranks on several hosts whose models are averaged in pairs: core/gossip/hosts_port.h, with the
// rounds of its mean (core/replicated/replica_port.h) and the channels between them
// (core/replicated/channel_mux.h) as they are shipped, over the simulated memory of each host and
// a simulated network. Messages take their time; ranks stop for a while between any two words or
// messages, or for ever, are killed, run slowly, and train on while they wait in vain for others.
//
// Each epoch ends with a finish, or with a settle. Checked:
//   1. After a finish all ranks have one model, bit for bit. If all have come and none has trained
//      on alone, it is what they began with and the mean of all that was learnt.
//      Ranks that go on from a finish without others end the next one with all again.
//   2. After a settle the sum of the models is that of what they began with and all that was
//      learnt, if all have come and none has trained on alone.
//   3. A rank that runs comes to the end of each step, whichever others have stopped, and of each
//      finish or its max_wait; or it hears that all ranks with the mean have died.
//   4. No sound message is refused.
//   5. A rank that looks at another sees a model of one moment.
// Some seeds have a codec, for a part of the model in float32. The rounding of that part counts
// for both ranks of an average: its sums are those of 1 and 2, but for float32's own rounding.
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_PAIRS_SIMULATION_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_PAIRS_SIMULATION_H_

#include <cstdint>
#include <string>

namespace covey {

struct HostPairsVerdict {
  std::string failure;  // empty: everything held
  std::string swarm;    // the faults of the seed
  uint64_t hash = 0;    // of everything that happened
  // Counts of events, for tests that require them.
  uint64_t steps = 0, near = 0, offers = 0, taken = 0, declined = 0, lost = 0;
  uint64_t stopped = 0, gone = 0, killed = 0, timeouts = 0, trained_on = 0;
  uint64_t went_on = 0, ended_later = 0;  // without others; of all then
  uint64_t finished = 0, settled = 0, whole = 0;
  uint64_t looks = 0, without_mean = 0;
  uint64_t decoded = 0, repaired = 0;  // chunks of a codec
};

// Runs one seed to its end, with that many ranks; 0: as the seed has it, up to six.
HostPairsVerdict RunHostPairs(uint64_t seed, int32_t ranks = 0);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_PAIRS_SIMULATION_H_
