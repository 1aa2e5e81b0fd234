// Staging a segment for peers to read, without the bytes that none of them does.
#ifndef COVEY_OPS_ALGORITHMS_STAGING_H_
#define COVEY_OPS_ALGORITHMS_STAGING_H_

#include <algorithm>
#include <cstdint>

#include "core/plan/schedule.h"

namespace covey {

// Bytes [begin, end) of a message.
struct ByteRange {
  uint64_t begin;
  uint64_t end;
};

// Copies `segment` of the own input to the own landing slot `slot`, all but the part in `own`:
// a reduction takes that from the input.
inline void StageForPeers(const Problem& p, uint32_t slot, ByteRange segment, ByteRange own,
                          Schedule* s) {
  const auto me = static_cast<int16_t>(p.me);
  const uint64_t gap_begin = std::clamp(own.begin, segment.begin, segment.end);
  const uint64_t gap_end = std::clamp(own.end, gap_begin, segment.end);
  for (const ByteRange& part :
       {ByteRange{segment.begin, gap_begin}, ByteRange{gap_end, segment.end}}) {
    if (part.begin == part.end) continue;
    s->steps.push_back({.kind = StepKind::kCopy,
                        .dst = {Place::kLanding, me, slot, part.begin - segment.begin},
                        .src = {Place::kInput, me, 0, part.begin},
                        .length_bytes = part.end - part.begin});
  }
}

}  // namespace covey
#endif  // COVEY_OPS_ALGORITHMS_STAGING_H_
