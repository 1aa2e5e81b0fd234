// alltoall/flat: each rank stages its message segment by segment, and copies out its own rows of
// all messages.
//
// One flag round when every message is one segment: the lowest latency. The message is in the order
// of its receivers, so of long ones a segment is for one or two ranks, which copy while the others
// wait: `pairwise` shares that out. n ranks, T = the longest message in segments: T ticks; each
// rank stages what it sends and copies what it gets.
//
// Worked example, 2 ranks, one segment: landing[0].0 = a0 a1, landing[1].0 = b0 b1; rank 0 copies
// a0 b0 out, rank 1 a1 b1.
//
// Why 3 slots suffice (plan-S3): exactly as for allreduce/flat.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

// The parts of all ranks' segment t that are for me.
void CopyOut(const Problem& p, uint32_t t, Schedule* s) {
  const uint64_t segment = t * p.slot_bytes;
  uint64_t to = 0;
  for (int32_t j = 0; j < p.size; ++j) {
    const uint64_t block = BlockBegin(p, j, p.me);
    const uint64_t bytes = BlockBytes(p, j, p.me);
    const uint64_t begin = std::max(block, segment);
    const uint64_t end = std::min(block + bytes, segment + p.slot_bytes);
    if (begin < end)
      s->steps.push_back(
          {.kind = StepKind::kCopy,
           .dst = {Place::kOutput, static_cast<int16_t>(p.me), 0, to + begin - block},
           .src = {Place::kLanding, static_cast<int16_t>(j), t, begin - segment},
           .length_bytes = end - begin});
    to += bytes;
  }
}

Schedule Build(const Problem& p) {
  uint64_t longest = 0;
  for (int32_t j = 0; j < p.size; ++j) longest = std::max(longest, InputBytes(p, j));
  const uint32_t segments = NumSegments(longest, p.slot_bytes);
  const uint64_t mine = InputBytes(p, p.me);
  const auto me = static_cast<int16_t>(p.me);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  for (uint32_t t = 0; t < segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
    if (t + 1 < segments) {
      const uint64_t at = (t + 1) * p.slot_bytes;
      if (at < mine)
        s.steps.push_back({.kind = StepKind::kCopy,
                           .dst = {Place::kLanding, me, t + 1, 0},
                           .src = {Place::kInput, me, 0, at},
                           .length_bytes = std::min(p.slot_bytes, mine - at)});
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    CopyOut(p, t, &s);
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kAlltoall,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
