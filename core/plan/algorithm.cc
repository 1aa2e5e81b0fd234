#include "core/plan/algorithm.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace covey {
namespace {

// Filled before main() by the registrations of ops/algorithms, read-only from then on.
std::vector<const Algorithm*>& Catalogue() {
  static std::vector<const Algorithm*> catalogue;  // process-wide: registrations only
  return catalogue;
}

}  // namespace

AlgorithmRegistration::AlgorithmRegistration(const Algorithm& algorithm) {
  auto& all = Catalogue();
  const auto less = [](const Algorithm* a, const Algorithm* b) {
    return std::make_tuple(a->kind, std::string_view(a->name)) <
           std::make_tuple(b->kind, std::string_view(b->name));
  };
  all.insert(std::upper_bound(all.begin(), all.end(), &algorithm, less), &algorithm);
}

std::span<const Algorithm* const> Algorithms() { return Catalogue(); }

const Algorithm* FindAlgorithm(Kind kind, std::string_view name) {
  for (const Algorithm* a : Catalogue())
    if (a->kind == kind && a->name == name) return a;
  return nullptr;
}

}  // namespace covey
