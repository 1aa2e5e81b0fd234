// method-W13: a method's plan depends on settings, view and version alone, so ranks that never
// ask each other plan alike.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PLANS_H_
#define COVEY_TESTS_SIM_SIMULATOR_PLANS_H_

#include <string>

namespace covey {

// The first method, version and rank at which it is not so, by the defaults, for up to 64 ranks in
// two orders; empty: it is so.
std::string FindPlanThatDiffers();

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PLANS_H_
