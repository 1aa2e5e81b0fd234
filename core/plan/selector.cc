#include "core/plan/selector.h"

#include "core/base/check.h"

namespace covey {
namespace {

// First row that holds wins. Sizes are of the whole message.
struct Row {
  Kind kind;
  bool arena;        // only when all members' tensors lie in the arena
  bool above_flat;   // only above flat_bytes
  int32_t min_size;  // members
  const char* algorithm;
};
constexpr Row kTable[] = {
    {Kind::kAllreduce, true, true, 2, "direct"},
    {Kind::kAllreduce, false, true, 3, "staged"},  // with two ranks `flat` moves fewer bytes
    {Kind::kAllreduce, false, false, 1, "flat"},
    {Kind::kBroadcast, false, false, 1, "flat"},
    {Kind::kAllgather, false, false, 1, "flat"},
    {Kind::kBarrier, false, false, 1, "flat"},
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
    if (row.above_flat && problem.length_bytes <= settings.flat_bytes) continue;
    const Algorithm* found = FindAlgorithm(row.kind, row.algorithm);
    CHECK(found != nullptr, "an algorithm of the selector's table is not linked in");
    if (found->fits(problem)) return *found;
  }
  CHECK(false, "no algorithm fits");
  __builtin_unreachable();
}

Schedule Plan(const void* settings, const Problem& problem) {
  return Select(*static_cast<const SelectorSettings*>(settings), problem).build(problem);
}

}  // namespace covey
