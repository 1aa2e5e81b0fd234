#include "core/plan/selector.h"

#include "core/base/check.h"
#include "core/plan/pushes.h"

namespace covey {
namespace {

// First row that holds wins. Sizes are of the whole message.
struct Row {
  Kind kind;
  bool arena;                         // only when all members' tensors lie in the arena
  bool readable;                      // only when members may read each other's private memory
  uint64_t SelectorSettings::*above;  // only above this many bytes; null = any
  int32_t min_size;                   // members
  const char* algorithm;
};
constexpr Row kTable[] = {
    {Kind::kAllreduce, true, false, &SelectorSettings::flat_bytes, 2, "direct"},
    {Kind::kAllreduce, false, true, &SelectorSettings::read_bytes, 2, "read"},
    // With two ranks `flat` moves fewer bytes.
    {Kind::kAllreduce, false, false, &SelectorSettings::flat_bytes, 3, "staged"},
    {Kind::kAllreduce, false, false, nullptr, 1, "flat"},
    {Kind::kBroadcast, false, false, nullptr, 1, "flat"},
    {Kind::kAllgather, false, false, nullptr, 1, "flat"},
    {Kind::kBarrier, false, false, nullptr, 1, "flat"},
    {Kind::kReducescatter, false, false, nullptr, 1, "flat"},
    {Kind::kAlltoall, false, false, nullptr, 1, "flat"},
};

}  // namespace

const Algorithm& Select(const SelectorSettings& settings, const Problem& problem) {
  if (settings.algorithm != "auto") {
    const Algorithm* wanted = FindAlgorithm(problem.kind, settings.algorithm);
    if (wanted != nullptr && wanted->fits(problem)) return *wanted;
  }
  for (const Row& row : kTable) {
    if (row.kind != problem.kind || problem.size < row.min_size) continue;
    if (row.arena && !problem.all_arena) continue;
    if (row.readable && !problem.all_readable) continue;
    if (row.above != nullptr && problem.length_bytes <= settings.*row.above) continue;
    const Algorithm* found = FindAlgorithm(row.kind, row.algorithm);
    CHECK(found != nullptr, "an algorithm of the selector's table is not linked in");
    if (found->fits(problem)) return *found;
  }
  CHECK(false, "no algorithm fits");
  __builtin_unreachable();
}

Schedule Plan(const void* settings, const Problem& problem) {
  const Algorithm& algorithm = Select(*static_cast<const SelectorSettings*>(settings), problem);
  if (!problem.mirrored) return algorithm.build(problem);
  std::vector<Schedule> schedules;
  Problem of_rank = problem;
  for (of_rank.me = 0; of_rank.me < problem.size; ++of_rank.me)
    schedules.push_back(algorithm.build(of_rank));
  return WithPushes(problem, schedules);
}

}  // namespace covey
