// Which algorithm performs a problem: a table, and a user's override. Pure; equal on every rank
// because the problem and the settings are.
#ifndef COVEY_CORE_PLAN_SELECTOR_H_
#define COVEY_CORE_PLAN_SELECTOR_H_

#include <string>

#include "core/plan/algorithm.h"

namespace covey {

struct SelectorSettings {
  uint64_t flat_bytes = 32 * 1024;  // up to this an allreduce is one flag round
  // Above this, ordinary tensors are read from their owners. Never by default: on a Sapphire Rapids
  // virtual machine (2026-11-21) 64 MiB at np=2 took 20-35 ms read and 13-41 ms staged, at np=4 88
  // and 46 ms.
  uint64_t read_bytes = uint64_t{1} << 40;
  std::string algorithm = "auto";  // or the name of one, used wherever it fits
};

const Algorithm& Select(const SelectorSettings& settings, const Problem& problem);

// Select and build. `settings` is a SelectorSettings (the executor holds it untyped).
Schedule Plan(const void* settings, const Problem& problem);

}  // namespace covey
#endif  // COVEY_CORE_PLAN_SELECTOR_H_
