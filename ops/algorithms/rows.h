// Rows of different lengths, staged and copied out segment by segment: what the kinds that gather
// have in common.
#ifndef COVEY_OPS_ALGORITHMS_ROWS_H_
#define COVEY_OPS_ALGORITHMS_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "core/plan/schedule.h"

namespace covey {

// The ticks of all ranks: the segments of the longest input.
inline uint32_t SegmentsOfLongest(const Problem& p) {
  const uint64_t longest = *std::max_element(p.shares.begin(), p.shares.end());
  return NumSegments(longest, p.slot_bytes);
}

// Bytes of segment t of a message of m bytes; 0 past its end.
inline uint64_t BytesOfSegment(const Problem& p, uint64_t m, uint32_t t) {
  const uint64_t begin = t * p.slot_bytes;
  return begin >= m ? 0 : std::min(p.slot_bytes, m - begin);
}

// Copies segment t of the own rows to the own landing slot t.
inline void StageRows(const Problem& p, uint32_t t, Schedule* s) {
  const auto me = static_cast<int16_t>(p.me);
  const uint64_t bytes = BytesOfSegment(p, p.shares[p.me], t);
  if (bytes == 0) return;
  s->steps.push_back({.kind = StepKind::kCopy,
                      .dst = {Place::kLanding, me, t, 0},
                      .src = {Place::kInput, me, 0, t * p.slot_bytes},
                      .length_bytes = bytes});
}

// Copies segment t of every rank's rows to its place in the own output.
inline void CopyRowsOut(const Problem& p, uint32_t t, Schedule* s) {
  uint64_t offset = 0;
  for (int32_t j = 0; j < p.size; ++j) {
    const uint64_t bytes = BytesOfSegment(p, p.shares[j], t);
    if (bytes > 0)
      s->steps.push_back(
          {.kind = StepKind::kCopy,
           .dst = {Place::kOutput, static_cast<int16_t>(p.me), 0, offset + t * p.slot_bytes},
           .src = {Place::kLanding, static_cast<int16_t>(j), t, 0},
           .length_bytes = bytes});
    offset += p.shares[j];
  }
}

}  // namespace covey
#endif  // COVEY_OPS_ALGORITHMS_ROWS_H_
