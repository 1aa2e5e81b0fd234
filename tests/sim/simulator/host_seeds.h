// Seeds of the simulator of replicas beyond those that every run takes, and what each has found; as
// those of rounds (round_seeds.h).
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_SEEDS_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_SEEDS_H_

#include <cstdint>

namespace covey {

inline constexpr uint64_t kHostSeeds[] = {
    3458,    // slow ranks make each attempt vain, in less time than one takes (replicated-W13)
    3920,    // contributions that come before their proposal are more than three sums
    3946,    // a rank alone asks the only holder for the same shards again and again
    23458,   // two versions at once fall out of a log of one
    34399,   // a rank that finds no donor takes its replica along; a snapshot is on its way to one
    50891,   // finish() waits for ever for a contribution of a rank that finished, and is stopped
    101811,  // then left alone: without a majority, which is not awaited (invariant 4)
    212719,  // a link within a host is slower than an attempt is patient (replicated-W17)
    109803,  // what it had accepted was committed in the place of what others took (replicated-W7c)
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_SEEDS_H_
