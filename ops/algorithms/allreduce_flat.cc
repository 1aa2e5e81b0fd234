// allreduce/flat: each rank reads all landing slots and reduces all of them.
//
// One flag round for a message of one segment, the lowest latency there is on shared memory; and
// with two ranks the least memory traffic, because nothing is copied twice. Longer messages are
// pipelined in segments. Per rank, n ranks, m bytes, T = ceil(m / slot) segments: T ticks, m bytes
// written to the landing slots, n*m bytes read. With many ranks and long messages the n*m reads
// lose against `staged`.
//
// Worked example, 3 ranks, two segments:
//   begin: segment 0 -> landing[me].0, tick 1
//   wait all >= 1; segment 1 -> landing[me].1, signal 2; output.0 = reduce(landing[*].0)
//   wait all >= 2;                                       output.1 = reduce(landing[*].1)
//
// Why 3 slots suffice (plan-S3): segment t+1 overwrites the slot of t-2. I write it after waiting
// for all ticks >= t+1, and a peer signals t+1 after it reduced t-2. The same holds across
// exchanges of a channel.
//
// A group of one member stages nothing beyond the begin: no peer reads its landing slots.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

Schedule BuildAlone(const Problem& p) {
  Schedule s{.algorithm = "flat", .steps = {}, .slots = 1, .reads_begin = false};
  for (uint64_t at = 0; at < p.length_bytes; at += p.slot_bytes)
    s.steps.push_back({.kind = StepKind::kReduce,
                       .dst = {Place::kOutput, 0, 0, at},
                       .src = {Place::kLanding, kEveryRank, 0, 0},
                       .input_offset = at,
                       .length_bytes = std::min(p.slot_bytes, p.length_bytes - at)});
  return s;
}

Schedule Build(const Problem& p) {
  if (p.size == 1) return BuildAlone(p);
  const uint32_t segments = NumSegments(p.length_bytes, p.slot_bytes);
  const auto me = static_cast<int16_t>(p.me);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  const auto bytes_of = [&](uint32_t t) {
    return std::min(p.slot_bytes, p.length_bytes - t * p.slot_bytes);
  };
  for (uint32_t t = 0; t < segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
    if (t + 1 < segments) {
      s.steps.push_back({.kind = StepKind::kCopy,
                         .dst = {Place::kLanding, me, t + 1, 0},
                         .src = {Place::kInput, me, 0, (t + 1) * p.slot_bytes},
                         .length_bytes = bytes_of(t + 1)});
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    if (p.length_bytes == 0) continue;
    s.steps.push_back({.kind = StepKind::kReduce,
                       .dst = {Place::kOutput, me, 0, t * p.slot_bytes},
                       .src = {Place::kLanding, kEveryRank, t, 0},
                       .input_offset = t * p.slot_bytes,
                       .length_bytes = bytes_of(t)});
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
