// broadcast/tree: each segment goes down a binomial tree, from slot to slot.
//
// Where a rank reads only from its parent, at most ceil(log2 n) ranks read one slot, against n - 1
// in `flat`; but every rank that has children copies twice, so that on one host `flat` is faster. n
// ranks, m bytes, T segments: T + 1 ticks, at most 2m bytes copied per rank.
//
// Worked example, 4 ranks, root 0, segment q:
//   0: landing[0].q = segment, signal q+2
//   2: waits for 0, output.q = landing[2].q = landing[0].q, signal q+2;  1: the same, no slot
//   3: waits for 2, output.q = landing[2].q, signal q+2
//
// Slots (plan-S3): segment q overwrites the slot of q-3, which my children copied before they
// signalled q-1; I wait for that. The last wait is for the next exchange.
#include <algorithm>

#include "core/plan/algorithm.h"
#include "ops/algorithms/binomial.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.length_bytes > 0; }

struct Tree {
  explicit Tree(const Problem& problem) : p(problem), me(static_cast<int16_t>(problem.me)) {
    const int32_t v = (p.me - p.root + p.size) % p.size;
    if (v > 0) parent = RankOf(ParentOf(v));
    for (int32_t child : ChildrenOf(v, p.size)) children.push_back(RankOf(child));
  }
  int16_t RankOf(int32_t v) const { return static_cast<int16_t>((v + p.root) % p.size); }

  // Until the slot that segment q will use has been read.
  void AwaitSlot(uint32_t q, Schedule* out) const {
    if (q < 3) return;
    for (int16_t child : children)
      out->steps.push_back({.kind = StepKind::kWait, .peer = child, .tick = q - 1});
  }

  void Segment(uint32_t q, Schedule* out) const {
    const uint64_t at = q * p.slot_bytes;
    const uint64_t bytes = std::min(p.slot_bytes, p.length_bytes - at);
    const bool root = p.me == p.root;
    const Buffer from =
        root ? Buffer{Place::kInput, me, 0, at} : Buffer{Place::kLanding, parent, q, 0};
    AwaitSlot(q, out);
    if (!root) out->steps.push_back({.kind = StepKind::kWait, .peer = parent, .tick = q + 2});
    // The begin has staged the root's first segment.
    if (!children.empty() && !(root && q == 0))
      out->steps.push_back({.kind = StepKind::kCopy,
                            .dst = {Place::kLanding, me, q, 0},
                            .src = from,
                            .length_bytes = bytes});
    out->steps.push_back({.kind = StepKind::kCopy,
                          .dst = {Place::kOutput, me, 0, at},
                          .src = from,
                          .length_bytes = bytes});
    out->steps.push_back({.kind = StepKind::kSignal, .tick = q + 2});
  }

  const Problem& p;
  int16_t me;
  int16_t parent = -1;
  std::vector<int16_t> children;
};

Schedule Build(const Problem& p) {
  const Tree tree(p);
  const uint32_t segments = NumSegments(p.length_bytes, p.slot_bytes);
  Schedule out{.algorithm = "tree", .steps = {}, .ticks = segments + 1, .slots = segments};
  for (uint32_t q = 0; q < segments; ++q) tree.Segment(q, &out);
  tree.AwaitSlot(segments, &out);
  return out;
}

constexpr Algorithm kAlgorithm{
    .name = "tree", .kind = Kind::kBroadcast, .fits = Fits, .build = Build};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
