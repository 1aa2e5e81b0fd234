// reducescatter/flat: each rank stages its whole message, segment by segment, and reduces its own
// share of all.
//
// One flag round for a message of one segment: the lowest latency. Of a longer message the segments
// belong to one or two ranks each, which reduce while the others wait: `staged` shares that out.
// Per rank, n ranks, m bytes, T = ceil(m / slot) segments: T ticks, m bytes staged, m read.
//
// Worked example, 3 ranks, one segment: landing[*].0 holds the three messages; rank 1 reduces the
// middle third of all three slots into its output.
//
// Why 3 slots suffice (plan-S3): exactly as for allreduce/flat.
#include <algorithm>

#include "core/plan/algorithm.h"
#include "ops/algorithms/staging.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

// My share of the segment that lies in slot t.
void ReduceOwn(const Problem& p, uint32_t t, Schedule* s) {
  const uint64_t share = ShareBegin(p, p.me);
  const uint64_t segment = t * p.slot_bytes;
  const uint64_t begin = std::max(share, segment);
  const uint64_t end = std::min(share + p.shares[static_cast<size_t>(p.me)],
                                std::min(segment + p.slot_bytes, p.length_bytes));
  if (begin >= end) return;
  s->steps.push_back({.kind = StepKind::kReduce,
                      .dst = {Place::kOutput, static_cast<int16_t>(p.me), 0, begin - share},
                      .src = {Place::kLanding, kEveryRank, t, begin - segment},
                      .input_offset = begin,
                      .length_bytes = end - begin});
}

Schedule Build(const Problem& p) {
  const uint32_t segments = NumSegments(p.length_bytes, p.slot_bytes);
  const uint64_t share = ShareBegin(p, p.me);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  for (uint32_t t = 0; t < segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
    if (t + 1 < segments) {
      const uint64_t at = (t + 1) * p.slot_bytes;
      StageForPeers(p, t + 1, {at, std::min(at + p.slot_bytes, p.length_bytes)},
                    {share, share + p.shares[static_cast<size_t>(p.me)]}, &s);
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    ReduceOwn(p, t, &s);
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kReducescatter,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
