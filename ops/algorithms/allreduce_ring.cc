// allreduce/ring: partial sums travel once around the ring in rank order, the result once more.
//
// Every rank talks to its two neighbours only, so this is what crosses hosts; on one host it is a
// baseline. The partial sum of a segment starts at rank 0 and ends at rank n-1 (rank order, rule
// kernels-K1: the same bits as every other algorithm), then the result goes n-1 -> 0 -> ... -> n-2.
// Both travel at once, pipelined by segment. After Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations", JPDC 2009, DOI 10.1016/j.jpdc.2008.09.002,
// but with one pipelined pass instead of n rotated ones, which would sum each piece in another
// order. n ranks, T segments: T + 2n - 2 steps; each rank passes on at most 2m bytes (4m for half
// precision, whose partial sums are float32).
//
// Worked example, 3 ranks, 1 segment, steps 0..4:
//   0: rank 0 landing.0 = x0   1: rank 1 landing.1 = x0+x1   2: rank 2 output = landing.2 =
//   x0+x1+x2
//   3: rank 0 output = landing.3 = result   4: rank 1 output = result
//
// A landing slot holds two halves: the partial sum and the result a rank passes on in one step.
// Slots (plan-S3): at step s a rank writes the slot of step s-3, which its successor read at step
// s-2; hence wait(next >= s). The last wait gives the following exchange's begin the same
// guarantee.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.length_bytes > 0 && p.slot_bytes >= 64; }

struct Ring {
  explicit Ring(const Problem& problem) : p(problem) {
    const uint64_t widening = SizeOf(AccumulatorOf(p.dtype)) / SizeOf(p.dtype);
    half = p.slot_bytes / 2;
    segment = half / widening;
    segments = NumSegments(p.length_bytes, segment);
    previous = static_cast<int16_t>((p.me + p.size - 1) % p.size);
    next = static_cast<int16_t>((p.me + 1) % p.size);
    me = static_cast<int16_t>(p.me);
  }

  uint64_t BytesOf(uint32_t t) const { return std::min(segment, p.length_bytes - t * segment); }
  Buffer Partial(int16_t rank, uint32_t step) const { return {Place::kLanding, rank, step, 0}; }
  Buffer Result(int16_t rank, uint32_t step) const { return {Place::kLanding, rank, step, half}; }
  Buffer Output(uint32_t t) const { return {Place::kOutput, me, 0, t * segment}; }

  // Segment t's partial sum passes this rank at step s.
  void Reduce(uint32_t s, uint32_t t, Schedule* out) const {
    const bool first = p.me == 0;
    out->steps.push_back({.kind = first ? StepKind::kBeginSum : StepKind::kAddToSum,
                          .dst = Partial(me, s),
                          .src = first ? Buffer{} : Partial(previous, s - 1),
                          .input_offset = t * segment,
                          .length_bytes = BytesOf(t)});
    if (p.me != p.size - 1) return;
    out->steps.push_back({.kind = StepKind::kFinishSum,
                          .dst = Output(t),
                          .src = Partial(me, s),
                          .length_bytes = BytesOf(t)});
    out->steps.push_back({.kind = StepKind::kCopy,
                          .dst = Result(me, s),
                          .src = Output(t),
                          .length_bytes = BytesOf(t)});
  }

  // Segment t's result passes this rank at step s.
  void Forward(uint32_t s, uint32_t t, Schedule* out) const {
    out->steps.push_back({.kind = StepKind::kCopy,
                          .dst = Output(t),
                          .src = Result(previous, s - 1),
                          .length_bytes = BytesOf(t)});
    if (p.me == p.size - 2) return;
    out->steps.push_back({.kind = StepKind::kCopy,
                          .dst = Result(me, s),
                          .src = Result(previous, s - 1),
                          .length_bytes = BytesOf(t)});
  }

  const Problem& p;
  uint64_t half, segment;
  uint32_t segments;
  int16_t previous, next, me;
};

Schedule Build(const Problem& p) {
  const Ring ring(p);
  const auto n = static_cast<uint32_t>(p.size);
  const auto r = static_cast<uint32_t>(p.me);
  const uint32_t steps = ring.segments + 2 * n - 2;
  Schedule out{
      .algorithm = "ring", .steps = {}, .ticks = steps + 1, .slots = steps, .reads_begin = false};
  for (uint32_t s = 0; s < steps; ++s) {
    out.steps.push_back({.kind = StepKind::kWait, .peer = ring.previous, .tick = s + 1});
    if (s > 0) out.steps.push_back({.kind = StepKind::kWait, .peer = ring.next, .tick = s});
    if (s >= r && s - r < ring.segments) ring.Reduce(s, s - r, &out);
    if (r + 1 < n && s >= n + r && s - n - r < ring.segments) ring.Forward(s, s - n - r, &out);
    out.steps.push_back({.kind = StepKind::kSignal, .tick = s + 2});
  }
  out.steps.push_back({.kind = StepKind::kWait, .peer = ring.next, .tick = steps});
  return out;
}

constexpr Algorithm kAlgorithm{
    .name = "ring", .kind = Kind::kAllreduce, .fits = Fits, .build = Build};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
