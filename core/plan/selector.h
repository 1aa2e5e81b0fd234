// Which algorithm performs a problem: a table, and a user's override. Pure; equal on every rank
// because the problem and the settings are.
#ifndef COVEY_CORE_PLAN_SELECTOR_H_
#define COVEY_CORE_PLAN_SELECTOR_H_

#include <string>

#include "core/plan/algorithm.h"

namespace covey {

struct SelectorSettings {
  uint64_t flat_bytes = 32 * 1024;  // up to this an allreduce is one flag round
  std::string algorithm = "auto";   // or the name of one, used wherever it fits
};

const Algorithm& Select(const SelectorSettings& settings, const Problem& problem);

// Select and build. `settings` is a SelectorSettings (the executor holds it untyped).
Schedule Plan(const void* settings, const Problem& problem);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_SELECTOR_H_
