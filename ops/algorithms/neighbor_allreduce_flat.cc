// neighbor_allreduce/flat: each rank stages its message segment by segment, and sums up, with its
// weights, those of the ranks it takes from.
//
// A rank waits, after the begin, only for those it takes from and those that take from it. n ranks,
// m bytes in T segments, d ranks to take from: T ticks; m bytes staged, (d + 1) m read and m
// written by each rank.
//
// Worked example, 3 ranks, one segment, i takes from i - 1 with weight 1/2: landing[0].0 = a,
// landing[1].0 = b, landing[2].0 = c; rank 0 makes a/2 + c/2 of its input and landing[2].0, rank 1
// a/2 + b/2, rank 2 b/2 + c/2, each in rank order.
//
// Why 3 slots suffice (plan-S3): segment t + 1 overwrites the slot of segment t - 2, staged once
// the ticks t + 1 of its readers are there. They gave them after they had read segment t - 2, which
// they do between their signals of tick t and tick t + 1. So does the first segment of the next
// exchange.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

// Those that I read, or that read me.
std::vector<int16_t> NeighborsOf(const Problem& p) {
  std::vector<int16_t> neighbors;
  for (int32_t j = 0; j < p.size; ++j)
    if (j != p.me && (Takes(p, p.me, j) || Takes(p, j, p.me)))
      neighbors.push_back(static_cast<int16_t>(j));
  return neighbors;
}

Schedule Build(const Problem& p) {
  const auto me = static_cast<int16_t>(p.me);
  const std::vector<int16_t> neighbors = NeighborsOf(p);
  bool is_read = false;
  for (const int16_t peer : neighbors) is_read |= Takes(p, peer, p.me);
  const uint32_t segments = NumSegments(p.length_bytes, p.slot_bytes);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  for (uint32_t t = 0; t < segments; ++t) {
    const uint64_t at = t * p.slot_bytes;
    for (const int16_t peer : neighbors)
      if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .peer = peer, .tick = t + 1});
    if (t + 1 < segments && is_read)
      s.steps.push_back(
          {.kind = StepKind::kCopy,
           .dst = {Place::kLanding, me, t + 1, 0},
           .src = {Place::kInput, me, 0, at + p.slot_bytes},
           .length_bytes = std::min(p.slot_bytes, p.length_bytes - at - p.slot_bytes)});
    if (t + 1 < segments) s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    if (at >= p.length_bytes) continue;  // an empty message
    s.steps.push_back({.kind = StepKind::kMix,
                       .dst = {Place::kOutput, me, 0, at},
                       .src = {Place::kLanding, kEveryRank, t, 0},
                       .input_offset = at,
                       .length_bytes = std::min(p.slot_bytes, p.length_bytes - at)});
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kNeighborAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
