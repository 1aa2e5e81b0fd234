// The draws of local steps, without any rank: numbers are distributed as the rule says.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PAIR_DRAWS_H_
#define COVEY_TESTS_SIM_SIMULATOR_PAIR_DRAWS_H_

#include <string>

#include "core/gossip/steps.h"

namespace covey {

// Of random numbers with the mean H one in H is 1, and two ranks draw others; fixed ones are H.
// Empty: it is so, within five standard deviations.
std::string FindDrawThatIsWrong(const PairRule& rule);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PAIR_DRAWS_H_
