// allreduce/staged: reduce-scatter and all-gather inside the landing slots, by batches of segments.
//
// For ordinary (private) memory and more than two ranks: each rank reduces 1/n of every segment and
// copies the rest from the others, so that reads do not grow with n. Per rank, n ranks, m bytes, B
// batches of segments: B + 1 ticks; m bytes staged, m reduced from landing slots, m copied out.
//
// The first batch is what all begins have staged, the others are of SegmentsOfBatch segments: with
// each tick all ranks wait for each other, which costs most where ranks share cores.
//
// Worked example, 4 ranks, batch b of one segment t: the segments of all ranks lie in landing[*].t.
// Rank 1 reduces quarter 1 of all four slots into quarter 1 of its own slot (no other rank reads
// that quarter of it), signals, waits for all, and copies quarter c from rank c's slot.
//
// Why a third of the slots suffices for a batch (plan-S3): batch b+1 overwrites slots of b-2 or
// before. I write them after waiting for all ticks >= b+1, and a peer signals b+1 after it copied
// b-2 out. The same holds across exchanges of a channel.
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

uint64_t BytesOf(const Problem& p, uint32_t t) {
  return std::min(p.slot_bytes, p.length_bytes - t * p.slot_bytes);
}

void CopyIn(const Problem& p, uint32_t t, Schedule* s) {
  const uint64_t at = t * p.slot_bytes;
  const uint64_t bytes = BytesOf(p, t);
  StageForPeers(p, t, {at, at + bytes},
                {at + PieceBegin(bytes, p.me, p.size), at + PieceBegin(bytes, p.me + 1, p.size)},
                s);
}

void ReduceOwnPiece(const Problem& p, uint32_t t, Schedule* s) {
  const auto me = static_cast<int16_t>(p.me);
  const uint64_t begin = PieceBegin(BytesOf(p, t), p.me, p.size);
  const uint64_t end = PieceBegin(BytesOf(p, t), p.me + 1, p.size);
  if (end == begin) return;
  s->steps.push_back({.kind = StepKind::kReduce,
                      .dst = {Place::kLanding, me, t, begin},
                      .src = {Place::kLanding, kEveryRank, t, begin},
                      .input_offset = t * p.slot_bytes + begin,
                      .length_bytes = end - begin});
}

void CopyOut(const Problem& p, uint32_t t, Schedule* s) {
  for (int32_t c = 0; c < p.size; ++c) {
    const uint64_t from = PieceBegin(BytesOf(p, t), c, p.size);
    const uint64_t to = PieceBegin(BytesOf(p, t), c + 1, p.size);
    if (to == from) continue;
    s->steps.push_back(
        {.kind = StepKind::kCopy,
         .dst = {Place::kOutput, static_cast<int16_t>(p.me), 0, t * p.slot_bytes + from},
         .src = {Place::kLanding, static_cast<int16_t>(c), t, from},
         .length_bytes = to - from});
  }
}

Schedule Build(const Problem& p) {
  const uint32_t segments = NumSegments(p.length_bytes, p.slot_bytes);
  const uint32_t most = SegmentsOfBatch(p.depth);
  Schedule s{.algorithm = "staged", .steps = {}, .slots = segments};
  uint32_t tick = 1;
  for (uint32_t begin = 0, end = p.staged_segments; begin < segments;) {
    const uint32_t next_end = std::min(segments, end + most);
    for (uint32_t t = end; t < next_end; ++t) CopyIn(p, t, &s);
    for (uint32_t t = begin; t < end; ++t) ReduceOwnPiece(p, t, &s);
    s.steps.push_back({.kind = StepKind::kSignal, .tick = ++tick});
    s.steps.push_back({.kind = StepKind::kWait, .tick = tick});
    for (uint32_t t = begin; t < end; ++t) CopyOut(p, t, &s);
    begin = end;
    end = next_end;
  }
  s.ticks = tick;
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
