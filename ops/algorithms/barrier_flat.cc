// barrier/flat: all ranks have begun, and all know it. One tick, no bytes.
#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

Schedule Build(const Problem&) {
  return {.algorithm = "flat", .steps = {}, .ticks = 1, .slots = 1};
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kBarrier,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
