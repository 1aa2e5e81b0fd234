#include "core/plan/selector.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/plan/pushes.h"

namespace covey {
namespace {

uint64_t LongestInput(const Problem& p) {
  uint64_t longest = 0;
  for (int32_t j = 0; j < p.size; ++j) longest = std::max(longest, InputBytes(p, j));
  return longest;
}

// An allgather's and an alltoall's is what all members hand in.
uint64_t MessageBytes(const Problem& p) {
  if (!Gathers(p.kind)) return p.length_bytes;
  return std::accumulate(p.shares.begin(), p.shares.end(), uint64_t{0});
}

bool Holds(const Preference& prefer, const SelectorSettings& settings, const Problem& problem) {
  if (prefer.priority == Preference::kByNameOnly || problem.size < prefer.min_size) return false;
  if (prefer.arena && !problem.all_arena) return false;
  if (prefer.hosts && problem.hosts.empty()) return false;
  if (prefer.readable && !problem.all_readable) return false;
  if (prefer.segmented && LongestInput(problem) <= problem.slot_bytes) return false;
  return prefer.above == nullptr || MessageBytes(problem) > settings.*prefer.above;
}

}  // namespace

const Algorithm& Select(const SelectorSettings& settings, const Problem& problem) {
  // Nothing else leaves out the host.
  if (problem.by_ipc) return *FindAlgorithm(problem.kind, "direct");
  if (settings.algorithm != "auto") {
    const Algorithm* wanted = FindAlgorithm(problem.kind, settings.algorithm);
    if (wanted != nullptr && CanDo(*wanted, problem)) return *wanted;
  }
  const Algorithm* best = nullptr;
  for (const Algorithm* a : Algorithms()) {
    if (a->kind != problem.kind || !Holds(a->prefer, settings, problem)) continue;
    if (best != nullptr && a->prefer.priority < best->prefer.priority) continue;
    if (CanDo(*a, problem)) best = a;
  }
  CHECK(best != nullptr, "no algorithm fits");
  return *best;
}

Schedule Plan(const SelectorSettings& settings, const Problem& problem) {
  const Algorithm& algorithm = Select(settings, problem);
  if (!problem.mirrored) return BuildSchedule(algorithm, problem);
  std::vector<Schedule> schedules;
  Problem of_rank = problem;
  for (of_rank.me = 0; of_rank.me < problem.size; ++of_rank.me)
    schedules.push_back(BuildSchedule(algorithm, of_rank));
  return WithPushes(problem, schedules);
}

}  // namespace covey
