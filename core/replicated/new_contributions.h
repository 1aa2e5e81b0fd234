// The kind of offer that the ranks of some rounds make: models or gradients.
#ifndef COVEY_CORE_REPLICATED_NEW_CONTRIBUTIONS_H_
#define COVEY_CORE_REPLICATED_NEW_CONTRIBUTIONS_H_

#include <memory>

#include "core/base/kernels.h"
#include "core/replicated/contributions.h"

namespace covey {

// As `of` has it. Both outlive them.
std::unique_ptr<Contributions> NewContributions(const RoundMemory& of, const Kernels* kernels);

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_NEW_CONTRIBUTIONS_H_
