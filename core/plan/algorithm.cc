#include "core/plan/algorithm.h"

#include <algorithm>
#include <set>
#include <string>
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

Schedule BuildSchedule(const Algorithm& algorithm, const Problem& p) {
  Schedule s = algorithm.build(p);
  if (!s.reads_begin || std::find(p.unstaged.begin(), p.unstaged.end(), true) == p.unstaged.end())
    return s;
  std::vector<Step> steps;
  const auto me = static_cast<int16_t>(p.me);
  if (IsUnstaged(p, p.me))
    steps.push_back({.kind = StepKind::kCopy,
                     .dst = {Place::kLanding, me, 0, 0},
                     .src = {Place::kInput, me, 0, 0},
                     .length_bytes = std::min(InputBytes(p, p.me), p.slot_bytes)});
  steps.push_back({.kind = StepKind::kSignal, .tick = 2});
  steps.push_back({.kind = StepKind::kWait, .tick = 2});
  for (Step& step : s.steps) {
    if (step.kind == StepKind::kSignal || step.kind == StepKind::kWait) ++step.tick;
    steps.push_back(step);
  }
  s.steps = std::move(steps);
  ++s.ticks;
  return s;
}

std::span<const Algorithm* const> Algorithms() { return Catalogue(); }

const Algorithm* FindAlgorithm(Kind kind, std::string_view name) {
  for (const Algorithm* a : Catalogue())
    if (a->kind == kind && a->name == name) return a;
  return nullptr;
}

Status CheckAlgorithmName(std::string_view name) {
  std::set<std::string_view> names;
  for (const Algorithm* a : Catalogue()) names.insert(a->name);
  if (name == "auto" || names.contains(name)) return Status::Ok();
  std::string listed = "auto";
  for (std::string_view known : names) listed += ", " + std::string(known);
  return Status::InvalidArgument("algorithm is \"" + std::string(name) +
                                 "\", which is not one of " + listed);
}

}  // namespace covey
