// broadcast/flat: the root stages segment after segment in its landing slots, all ranks copy them
// out.
//
// n ranks, m bytes, T segments: T ticks; the root writes m bytes, the others read and write m bytes
// each.
//
// Worked example, 3 ranks, root 0, two segments:
//   begin: root: segment 0 -> landing[0].0; all: tick 1
//   root:   wait all >= 1; segment 1 -> landing[0].1, signal 2
//   others: output.0 = landing[0].0, signal 2; wait root >= 2; output.1 = landing[0].1
//
// Why 3 slots suffice (plan-S3): segment t+1 overwrites the slot of t-2; the root writes it after
// waiting for all ticks >= t+1, which the others signal after they copied t-1 out.
//
// A group of one member stages nothing beyond the begin: no peer reads its landing slots.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem&) { return true; }

void RootSegment(const Problem& p, uint32_t t, uint64_t next_bytes, Schedule* s) {
  s->steps.push_back({.kind = StepKind::kWait, .tick = t + 1});
  const auto me = static_cast<int16_t>(p.me);
  s->steps.push_back({.kind = StepKind::kCopy,
                      .dst = {Place::kLanding, me, t + 1, 0},
                      .src = {Place::kInput, me, 0, (t + 1) * p.slot_bytes},
                      .length_bytes = next_bytes});
  s->steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
}

void ReceiverSegment(const Problem& p, uint32_t t, bool last, uint64_t bytes, Schedule* s) {
  const auto root = static_cast<int16_t>(p.root);
  if (t > 0) s->steps.push_back({.kind = StepKind::kWait, .peer = root, .tick = t + 1});
  if (bytes > 0)
    s->steps.push_back({.kind = StepKind::kCopy,
                        .dst = {Place::kOutput, static_cast<int16_t>(p.me), 0, t * p.slot_bytes},
                        .src = {Place::kLanding, root, t, 0},
                        .length_bytes = bytes});
  if (!last) s->steps.push_back({.kind = StepKind::kSignal, .tick = t + 2});
}

Schedule Build(const Problem& p) {
  const uint32_t segments = p.size == 1 ? 1 : NumSegments(p.length_bytes, p.slot_bytes);
  const auto me = static_cast<int16_t>(p.me);
  Schedule s{.algorithm = "flat", .steps = {}, .ticks = segments, .slots = segments};
  const auto bytes_of = [&](uint32_t t) {
    return std::min(p.slot_bytes, p.length_bytes - t * p.slot_bytes);
  };
  for (uint32_t t = 0; t < segments; ++t) {
    const bool last = t + 1 == segments;
    if (p.me != p.root) {
      ReceiverSegment(p, t, last, bytes_of(t), &s);
    } else if (!last) {
      RootSegment(p, t, bytes_of(t + 1), &s);
    }
  }
  if (p.me == p.root && p.length_bytes > 0)
    s.steps.push_back({.kind = StepKind::kCopy,
                       .dst = {Place::kOutput, me, 0, 0},
                       .src = {Place::kInput, me, 0, 0},
                       .length_bytes = p.length_bytes});
  return s;
}

constexpr Algorithm kAlgorithm{.name = "flat",
                               .kind = Kind::kBroadcast,
                               .fits = Fits,
                               .build = Build,
                               .prefer = {.priority = 0}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
