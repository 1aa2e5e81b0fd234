// Which algorithm performs a problem: the preferences of the catalogue, and the override by a user.
// Pure; equal on every rank because the problem and the settings are.
#ifndef COVEY_CORE_PLAN_SELECTOR_H_
#define COVEY_CORE_PLAN_SELECTOR_H_

#include "core/plan/algorithm.h"

namespace covey {

const Algorithm& Select(const SelectorSettings& settings, const Problem& problem);

// Selects and builds.
Schedule Plan(const SelectorSettings& settings, const Problem& problem);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_SELECTOR_H_
