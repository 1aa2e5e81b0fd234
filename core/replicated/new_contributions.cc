#include "core/replicated/new_contributions.h"

#include "core/replicated/latest_model.h"
#include "core/replicated/pending_contributions.h"

namespace covey {

std::unique_ptr<Contributions> NewContributions(const RoundMemory& of, const Kernels* kernels) {
  if (of.models().on()) return std::make_unique<LatestModel>(of.layout().length_bytes());
  return std::make_unique<PendingContributions>(&of.layout(), kernels);
}

}  // namespace covey
