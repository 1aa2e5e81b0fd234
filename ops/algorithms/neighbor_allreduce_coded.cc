// neighbor_allreduce/coded: each rank encodes into its landing slots, decodes those of the ranks it
// takes from and its own, and is moved by their differences.
//
// For problems with a codec (core/run/codec.h), and the only one for them: output_i = input_i + the
// sum over j of W_ij (Q(input_j) - Q(input_i)), where all ranks round with the same draws. So where
// rows and columns of W sum to 1 the mean of all stays what it is, up to rounding of float32,
// whatever the codec leaves out; and equal inputs stay as they are.
//
// A rank waits, after the begin, only for those it takes from and those that take from it. n ranks,
// m bytes of message, e of them encoded, s bytes of message in a segment (as many whole blocks as a
// slot holds codes of), T = ceil(m / s), d ranks to take from: T ticks; e bytes written to the
// landing slots, (d + 1) e read.
//
// Worked example, 3 ranks, one segment, i takes from i - 1 with weight 1/2: landing[i].0 = Q(x_i),
// rank 0 makes x_0 + (Q(x_2) - Q(x_0)) / 2, rank 1 x_1 + (Q(x_0) - Q(x_1)) / 2, and so on.
//
// Why 3 slots suffice (plan-S3): as for `flat` (neighbor_allreduce_flat.cc). A rank reads its own
// slots too, before it writes them again itself.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.dtype == DType::kF32; }

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
  const uint64_t segment_bytes = SegmentBytes(p);
  const uint32_t segments = NumSegments(p.length_bytes, segment_bytes);
  Schedule s{.algorithm = "coded", .steps = {}, .ticks = segments, .slots = segments};
  const auto bytes_of = [&](uint32_t t) {
    return std::min(segment_bytes, p.length_bytes - t * segment_bytes);
  };
  for (uint32_t t = 0; t < segments; ++t) {
    for (const int16_t peer : neighbors)
      if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .peer = peer, .tick = t + 1});
    if (t + 1 < segments) {
      s.steps.push_back({.kind = StepKind::kEncode,
                         .dst = {Place::kLanding, me, t + 1, 0},
                         .input_offset = (t + 1) * segment_bytes,
                         .length_bytes = bytes_of(t + 1)});
      s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    }
    if (p.length_bytes == 0) continue;
    s.steps.push_back({.kind = StepKind::kMixCoded,
                       .dst = {Place::kOutput, me, 0, t * segment_bytes},
                       .src = {Place::kLanding, kEveryRank, t, 0},
                       .input_offset = t * segment_bytes,
                       .length_bytes = bytes_of(t)});
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "coded",
                               .kind = Kind::kNeighborAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .codes = true,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
