// allreduce/coded: each rank encodes into its landing slots, decodes those of all ranks and reduces
// them.
//
// For problems with a codec (core/run/codec.h), and the only one for them. Steps as `flat`: what
// travels are codes, and contributions are decoded and reduced in float32 in rank order
// (kernels-K1), the own one too, so every rank holds the same bits. A code is made once, of what
// its rank handed in: no error grows with the ranks but by the sum. Per rank, n ranks, m bytes of
// message, e of them encoded, s bytes of message in a segment (as many whole blocks as a slot holds
// codes of), T = ceil(m / s): T ticks, e bytes written to the landing slots, n*e read.
//
// Worked example, 3 ranks, two segments:
//   begin: encode segment 0 -> landing[me].0, tick 1
//   wait all >= 1; encode segment 1 -> landing[me].1, signal 2
//                  output.0 = reduce(decode(landing[*].0))
//   wait all >= 2; output.1 = reduce(decode(landing[*].1))
//
// Why 3 slots suffice (plan-S3): segment t+1 overwrites the slot of t-2. I write it after waiting
// for all ticks >= t+1, and a peer signals t+1 after it reduced t-2. The same holds across
// exchanges of a channel.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.dtype == DType::kF32; }

Schedule Build(const Problem& p) {
  const uint64_t segment_bytes = SegmentBytes(p);
  const uint32_t segments = NumSegments(p.length_bytes, segment_bytes);
  const auto me = static_cast<int16_t>(p.me);
  Schedule s{.algorithm = "coded", .steps = {}, .ticks = segments, .slots = segments};
  const auto bytes_of = [&](uint32_t t) {
    return std::min(segment_bytes, p.length_bytes - t * segment_bytes);
  };
  for (uint32_t t = 0; t < segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
    if (t + 1 < segments) {
      s.steps.push_back({.kind = StepKind::kEncode,
                         .dst = {Place::kLanding, me, t + 1, 0},
                         .input_offset = (t + 1) * segment_bytes,
                         .length_bytes = bytes_of(t + 1)});
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    if (p.length_bytes == 0) continue;
    s.steps.push_back({.kind = StepKind::kReduceCoded,
                       .dst = {Place::kOutput, me, 0, t * segment_bytes},
                       .src = {Place::kLanding, kEveryRank, t, 0},
                       .length_bytes = bytes_of(t)});
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "coded",
                               .kind = Kind::kAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .codes = true,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
