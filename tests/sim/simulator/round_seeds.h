// Seeds of the simulator of rounds beyond those that every run takes, and what each has found.
//
// The test of rounds replays them, and so does that of every mutant of the rounds. A seed says what
// happens only to the code of its day: once the code asks for other words it is one like any other.
#ifndef COVEY_TESTS_SIM_SIMULATOR_ROUND_SEEDS_H_
#define COVEY_TESTS_SIM_SIMULATOR_ROUND_SEEDS_H_

#include <cstdint>

namespace covey {

inline constexpr uint64_t kRoundSeeds[] = {
    22231,    // what was waited for a slow rank was forgotten when another one fired (partial-W9a)
    17832,    // the same
    71175,    // the same, up to the end of the version
    32606,    // its steps are in a version that no rank ends: the check took them for lost
    40697,    // a claim that the rank saw later than the check did, after it was stopped itself
    93397,    // the same, of a rank that was stopped between its look and the check
    86568,    // an offer is retracted, and its owner stops before it asks again (partial-W10)
    2432,     // the last that trains runs ahead of one that has finished: the check took it for two
    180912,   // ranks need a snapshot one after the other, not all at once (partial-W10)
    16453,    // the same, for the mutant that looks at them once (w10_need_seen_once)
    2061503,  // a step without gradient offers anew: the check took it for lost
};

// The same for rounds of models.
inline constexpr uint64_t kModelSeeds[] = {
    2016791,  // a rank whose step was dropped had its own model for parts of the mean (partial-W6a)
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_ROUND_SEEDS_H_
