// The progress of a rank of the simulator of pairs in a step.
#ifndef COVEY_TESTS_SIM_SIMULATOR_PAIR_LEARNING_H_
#define COVEY_TESTS_SIM_SIMULATOR_PAIR_LEARNING_H_

#include <cstddef>
#include <vector>

#include "core/base/rng.h"
#include "core/partial/layout.h"

namespace covey {

// Adds whole numbers of 1 to 200 to all elements of the model, so that what is lost shows. Those,
// in the order of the elements.
std::vector<double> LearnWhole(const RoundLayout& layout, Rng* rng, std::vector<std::byte>* model);

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_PAIR_LEARNING_H_
