// allreduce/put: two ranks of different hosts put their inputs into each other's mirrors, segment
// by segment, and each reduces all of them.
//
// As `flat`, without the copy to the own landing slot, which no rank of another host reads. A
// segment is half of a landing slot. Per rank, m bytes, T segments: T + 1 ticks; m bytes put, 2m
// read, m written.
//
// Worked example, four segments, at rank 0; the begin has staged and pushed segments 0 and 1:
//   signal 2
//   wait >= 2; put 2, signal 3; output.0 = reduce(0)
//   wait >= 3; put 3, signal 4; output.1 = reduce(1)
//   wait >= 4;        signal 5; output.2 = reduce(2)
//   wait >= 5;                  output.3 = reduce(3)
//
// Why the output may be the input (plan-S3, plan-S4): the network reads segment t of the input
// until the peer has it. The peer waits for tick t+1, which goes with it, before it signals t+2;
// output.t is written after that.
// Why 3 slots suffice: segment t+1 overwrites the place of t-5. I put it after waiting for tick
// t+1, which the peer gives after it has reduced t-3. The same holds across exchanges of a channel.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

// With one segment `flat` ends a tick earlier.
bool Fits(const Problem& p) {
  return p.size == 2 && ReadsMirror(p, 0, 1) && p.length_bytes > p.slot_bytes;
}

Schedule Build(const Problem& p) {
  const auto me = static_cast<int16_t>(p.me);
  const uint64_t segment = p.slot_bytes / 2;
  const uint32_t segments = NumSegments(p.length_bytes, segment);
  Schedule s{.algorithm = "put",
             .steps = {},
             .ticks = segments + 1,
             .slots = (segments + 1) / 2,
             .puts_input = true};
  const auto bytes_of = [&](uint32_t t) { return std::min(segment, p.length_bytes - t * segment); };
  const auto landing = [&](int16_t whose, uint32_t t) {
    return Buffer{Place::kLanding, whose, t / 2, t % 2 * segment};
  };
  for (uint32_t t = 0; t <= segments; ++t) {
    if (t > 0) s.steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
    if (t > 0 && t + 1 < segments)
      s.steps.push_back({.kind = StepKind::kPush,
                         .dst = landing(me, t + 1),
                         .src = {Place::kInput, me, 0, (t + 1) * segment},
                         .length_bytes = bytes_of(t + 1)});
    if (t < segments) s.steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
    if (t > 0)
      s.steps.push_back({.kind = StepKind::kReduce,
                         .dst = {Place::kOutput, me, 0, (t - 1) * segment},
                         .src = landing(kEveryRank, t - 1),
                         .input_offset = (t - 1) * segment,
                         .length_bytes = bytes_of(t - 1)});
  }
  return s;
}

constexpr Algorithm kAlgorithm{.name = "put",
                               .kind = Kind::kAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 4, .min_size = 2, .segmented = true}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
