#include "tests/sim/simulator/plans.h"

#include "core/method/method.h"

namespace covey {
namespace {

constexpr int64_t kVersions = 30;

}  // namespace

std::string FindPlanThatDiffers() {
  for (const Method* method : Methods()) {
    MethodChoice choice;
    if (!ParseMethod(method->name, &choice).ok()) return std::string(method->name) + " is no text";
    for (const int32_t size : {1, 2, 3, 7, 64})
      for (int64_t version = 0; version < kVersions; ++version) {
        const MethodPlan first = choice.Plan({size, GroupIndex{0}}, version);
        for (int32_t rank = size - 1; rank >= 0; --rank)
          if (choice.Plan({size, GroupIndex{rank}}, version) != first)
            return "W13: rank " + std::to_string(rank) + " of " + std::to_string(size) +
                   " plans version " + std::to_string(version) + " of " + method->name +
                   " otherwise than rank 0";
      }
  }
  return "";
}

}  // namespace covey
