// Seeds of the simulator of seats beyond those that every run takes, and what each has found; as
// those of rounds (round_seeds.h).
#ifndef COVEY_TESTS_SIM_SIMULATOR_HOST_SEEDS_H_
#define COVEY_TESTS_SIM_SIMULATOR_HOST_SEEDS_H_

#include <cstdint>

namespace covey {

inline constexpr uint64_t kHostSeeds[] = {
    34399,   // who finds that nobody can give a snapshot takes its seat along; a gift is under way
    101811,  // to who is then left alone: without a majority, which is not awaited (invariant 4)
    109803,  // what it kept was decided in the place of what others took along (replicated-W7c)
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_HOST_SEEDS_H_
