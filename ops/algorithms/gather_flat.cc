// gather/flat: every rank stages its own rows segment by segment, the root copies all of them out.
//
// Rows differ between ranks; a rank whose rows have ended goes on ticking. n ranks, m_j bytes of
// rank j, T = the longest m_j in segments: T ticks; m_me bytes staged; the root copies sum of m_j
// out. A rank other than the root waits for the root alone.
//
// Worked example, 2 ranks, root 0, rank 0 has 1 segment, rank 1 has 2:
//   rank 0                                  rank 1
//   begin: slot 0 = segment 0               begin: slot 0 = segment 0
//   signal 2                                slot 1 = segment 1; signal 2
//   output <- landing[0].0, landing[1].0    wait 0 >= 2
//   wait * >= 2
//   output <- landing[1].1
//
// Why 3 slots suffice (plan-S3): a rank writes segment t + 1 once the root has reached tick t + 1.
// The root reaches it after it has copied segment t - 2 out.
#include "core/plan/algorithm.h"
#include "ops/algorithms/rows.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

Schedule Build(const Problem& p) {
  const uint32_t segments = SegmentsOfLongest(p);
  const bool is_root = p.me == p.root;
  const int16_t awaited = is_root ? kEveryRank : static_cast<int16_t>(p.root);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  for (uint32_t t = 0; t < segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .peer = awaited, .tick = t + 1});
    if (t + 1 < segments) {
      StageRows(p, t + 1, &s);
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    if (is_root) CopyRowsOut(p, t, &s);
  }
  return s;
}

constexpr Algorithm kAlgorithm{
    .name = "flat", .kind = Kind::kGather, .fits = Fits, .build = Build, .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
