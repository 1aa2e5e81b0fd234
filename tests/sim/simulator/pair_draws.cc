#include "tests/sim/simulator/pair_draws.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace covey {
namespace {

constexpr int kBatches = 600;

std::vector<int> Drawn(int32_t rank, const PairRule& rule) {
  std::vector<int> drawn;
  LocalSteps turns(rank, rule);
  for (int i = 0; i < kBatches; ++i) {
    int steps = 1;
    while (!turns.IsLast()) ++steps;
    drawn.push_back(steps);
  }
  return drawn;
}

}  // namespace

std::string FindDrawThatIsWrong(const PairRule& rule) {
  const auto mean = static_cast<double>(rule.local_steps);
  const double ones = rule.is_random ? 1 / mean : (mean == 1 ? 1 : 0);
  const double variance = rule.is_random ? mean * mean - mean : 0;
  for (const int32_t rank : {0, 1}) {
    const std::vector<int> drawn = Drawn(rank, rule);
    const double sum = std::accumulate(drawn.begin(), drawn.end(), 0);
    const auto found = static_cast<double>(std::count(drawn.begin(), drawn.end(), 1));
    if (std::abs(sum - mean * kBatches) > 5 * std::sqrt(variance * kBatches) ||
        std::abs(found - ones * kBatches) > 5 * std::sqrt(ones * (1 - ones) * kBatches))
      return "local steps are " + std::to_string(sum / kBatches) + " on average, and one alone " +
             std::to_string(found) + " times of " + std::to_string(kBatches) + ", but H is " +
             std::to_string(rule.local_steps);
  }
  const bool may_be_alike = !rule.is_random || rule.local_steps == 1;
  return may_be_alike || Drawn(0, rule) != Drawn(1, rule)
             ? ""
             : "two ranks draw the same numbers of local steps";
}

}  // namespace covey
