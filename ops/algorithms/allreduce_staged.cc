// allreduce/staged: reduce-scatter and all-gather inside the landing slots, segment by segment.
//
// For ordinary (private) memory and more than two ranks: each rank reduces 1/n of every segment and
// copies the rest from the others, so that reads do not grow with n. Per rank, n ranks, m bytes, T
// segments: T + 1 ticks; m bytes staged, m reduced from landing slots, m copied out.
//
// Worked example, 4 ranks, segment t: the segments of all ranks lie in landing[*].t. Rank 1 reduces
// quarter 1 of all four slots into quarter 1 of its own slot (no other rank reads that quarter of
// it), signals, waits for all, and copies quarter c from rank c's slot.
//
// Why 3 slots suffice (plan-S3): segment t+1 overwrites the slot of t-2. I write it after waiting
// for all ticks >= t+1, and a peer signals t+1 after it copied t-2 out. The same holds across
// exchanges of a channel.
#include <algorithm>

#include "core/plan/algorithm.h"
#include "ops/algorithms/staging.h"

namespace covey {
namespace {

constexpr uint64_t kAlign = 64;

bool Fits(const Problem& p) { return p.length_bytes > 0; }

// Where the piece of rank `index` begins in a segment: whole cache lines, so that no two ranks
// write one.
uint64_t PieceBegin(uint64_t segment_bytes, int32_t index, int32_t size) {
  const uint64_t lines = (segment_bytes + kAlign - 1) / kAlign;
  return std::min(segment_bytes,
                  lines * static_cast<uint64_t>(index) / static_cast<uint64_t>(size) * kAlign);
}

void CopyIn(const Problem& p, uint32_t t, uint64_t bytes, Schedule* s) {
  const uint64_t at = t * p.slot_bytes;
  StageForPeers(p, t, {at, at + bytes},
                {at + PieceBegin(bytes, p.me, p.size), at + PieceBegin(bytes, p.me + 1, p.size)},
                s);
}

Schedule Build(const Problem& p) {
  const uint32_t segments = NumSegments(p.length_bytes, p.slot_bytes);
  const auto me = static_cast<int16_t>(p.me);
  Schedule s{.algorithm = "staged", .steps = {}, .ticks = segments + 1, .slots = segments};
  const auto bytes_of = [&](uint32_t t) {
    return std::min(p.slot_bytes, p.length_bytes - t * p.slot_bytes);
  };
  for (uint32_t t = 0; t < segments; ++t) {
    const uint64_t bytes = bytes_of(t);
    if (t + 1 < segments) CopyIn(p, t + 1, bytes_of(t + 1), &s);
    const uint64_t begin = PieceBegin(bytes, p.me, p.size);
    const uint64_t end = PieceBegin(bytes, p.me + 1, p.size);
    if (end > begin)
      s.steps.push_back({.kind = StepKind::kReduce,
                         .dst = {Place::kLanding, me, t, begin},
                         .src = {Place::kLanding, kEveryRank, t, begin},
                         .input_offset = t * p.slot_bytes + begin,
                         .length_bytes = end - begin});
    s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    s.steps.push_back({.kind = StepKind::kWait, .tick = t + 2});
    for (int32_t c = 0; c < p.size; ++c) {
      const uint64_t from = PieceBegin(bytes, c, p.size);
      const uint64_t to = PieceBegin(bytes, c + 1, p.size);
      if (to == from) continue;
      s.steps.push_back({.kind = StepKind::kCopy,
                         .dst = {Place::kOutput, me, 0, t * p.slot_bytes + from},
                         .src = {Place::kLanding, static_cast<int16_t>(c), t, from},
                         .length_bytes = to - from});
    }
  }
  return s;
}

// With two ranks `flat` moves fewer bytes.
constexpr Algorithm kAlgorithm{
    .name = "staged",
    .kind = Kind::kAllreduce,
    .fits = Fits,
    .build = Build,
    .prefer = {.priority = 1, .min_size = 3, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
