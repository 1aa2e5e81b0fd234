// allgather/flat: each rank stages its own rows segment by segment, and copies all of them out.
//
// Rows differ between ranks; a rank whose rows have ended goes on ticking. n ranks, m_j bytes of
// rank j, T = the longest m_j in segments: T ticks; m_me bytes staged, sum of m_j copied out.
//
// Worked example, 2 ranks, rank 0 has 1 segment, rank 1 has 2: as allreduce/flat, but instead of
// reducing, both copy landing[0].0 and landing[1].0 to their places in the output, then
// landing[1].1.
//
// Why 3 slots suffice (plan-S3): exactly as for allreduce/flat.
//
// A group of one member stages nothing beyond the begin: no peer reads its landing slots.
#include <algorithm>

#include "core/plan/algorithm.h"
#include "ops/algorithms/rows.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

Schedule BuildAlone(const Problem& p) {
  Schedule s{.algorithm = "flat", .steps = {}, .slots = 1, .reads_begin = false};
  for (uint64_t at = 0; at < p.shares[0]; at += p.slot_bytes)
    s.steps.push_back({.kind = StepKind::kCopy,
                       .dst = {Place::kOutput, 0, 0, at},
                       .src = {Place::kInput, 0, 0, at},
                       .length_bytes = std::min(p.slot_bytes, p.shares[0] - at)});
  return s;
}

Schedule Build(const Problem& p) {
  if (p.size == 1) return BuildAlone(p);
  const uint32_t segments = SegmentsOfLongest(p);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  for (uint32_t t = 0; t < segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
    if (t + 1 < segments) {
      StageRows(p, t + 1, &s);
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    CopyRowsOut(p, t, &s);
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kAllgather,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
