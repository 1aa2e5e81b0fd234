#include "core/partial/drawn.h"

#include <algorithm>

#include "core/base/rng.h"

namespace covey {
namespace {

uint64_t PriorityOf(const Counted& one, uint64_t seed, uint64_t version) {
  return Rng(Rng(Rng(seed).Next() + version).Next() + static_cast<uint64_t>(one.member)).Next();
}

}  // namespace

// partial-W4a: priorities follow from seed and version, so all ranks draw the same members.
bool HasOneDrawnArrived(const std::vector<Counted>& counted, int32_t count, uint64_t seed,
                        uint64_t version) {
  return std::any_of(counted.begin(), counted.end(), [&](const Counted& one) {
    if (!one.arrived) return false;
    const uint64_t own = PriorityOf(one, seed, version);
    const auto before = std::count_if(counted.begin(), counted.end(), [&](const Counted& other) {
      return PriorityOf(other, seed, version) < own;
    });
    return before < count;
  });
}

}  // namespace covey
