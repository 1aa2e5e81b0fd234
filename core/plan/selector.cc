#include "core/plan/selector.h"

#include <algorithm>

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
  bool segmented = false;  // only when somebody's message takes more than one landing slot
};
constexpr Row kTable[] = {
    {Kind::kAllreduce, false, false, nullptr, 1, "coded"},  // with a codec, and only then
    {Kind::kAllreduce, true, false, &SelectorSettings::flat_bytes, 2, "direct"},
    {Kind::kAllreduce, false, true, &SelectorSettings::read_bytes, 2, "read"},
    // With two ranks `flat` moves fewer bytes.
    {Kind::kAllreduce, false, false, &SelectorSettings::flat_bytes, 3, "staged"},
    {Kind::kAllreduce, false, false, nullptr, 1, "flat"},
    {Kind::kBroadcast, false, false, nullptr, 1, "flat"},
    {Kind::kAllgather, false, false, nullptr, 1, "flat"},
    {Kind::kBarrier, false, false, nullptr, 1, "flat"},
    // A message in one slot is one flag round with `flat`. Beyond, ranks take turns with it. On a
    // busy 2-core Sapphire Rapids virtual machine (2026-11-21), np=2, medians: reducescatter of 1
    // MiB 142 us flat, 102 us staged; alltoall of 1 MiB 503 us flat, 282 us pairwise.
    {Kind::kReducescatter, true, false, &SelectorSettings::flat_bytes, 2, "direct"},
    {Kind::kReducescatter, false, false, nullptr, 2, "staged", true},
    {Kind::kReducescatter, false, false, nullptr, 1, "flat"},
    {Kind::kAlltoall, false, false, nullptr, 2, "pairwise", true},
    {Kind::kAlltoall, false, false, nullptr, 1, "flat"},
    {Kind::kNeighborAllreduce, false, false, nullptr, 1, "coded"},  // likewise
    {Kind::kNeighborAllreduce, false, false, nullptr, 1, "flat"},
};

uint64_t LongestInput(const Problem& p) {
  uint64_t longest = 0;
  for (int32_t j = 0; j < p.size; ++j) longest = std::max(longest, InputBytes(p, j));
  return longest;
}

}  // namespace

const Algorithm& Select(const SelectorSettings& settings, const Problem& problem) {
  // Nothing else leaves out the host.
  if (problem.in_common) return *FindAlgorithm(problem.kind, "direct");
  if (settings.algorithm != "auto") {
    const Algorithm* wanted = FindAlgorithm(problem.kind, settings.algorithm);
    if (wanted != nullptr && CanDo(*wanted, problem)) return *wanted;
  }
  for (const Row& row : kTable) {
    if (row.kind != problem.kind || problem.size < row.min_size) continue;
    if (row.arena && !problem.all_arena) continue;
    if (row.readable && !problem.all_readable) continue;
    if (row.segmented && LongestInput(problem) <= problem.slot_bytes) continue;
    if (row.above != nullptr && problem.length_bytes <= settings.*row.above) continue;
    const Algorithm* found = FindAlgorithm(row.kind, row.algorithm);
    CHECK(found != nullptr, "an algorithm of the selector's table is not linked in");
    if (CanDo(*found, problem)) return *found;
  }
  CHECK(false, "no algorithm fits");
  __builtin_unreachable();
}

Schedule Plan(const void* settings, const Problem& problem) {
  const Algorithm& algorithm = Select(*static_cast<const SelectorSettings*>(settings), problem);
  if (!problem.mirrored) return BuildSchedule(algorithm, problem);
  std::vector<Schedule> schedules;
  Problem of_rank = problem;
  for (of_rank.me = 0; of_rank.me < problem.size; ++of_rank.me)
    schedules.push_back(algorithm.build(of_rank));
  return WithPushes(problem, schedules);
}

}  // namespace covey
