// allreduce/tree: partial sums go up a binomial tree to rank 0, the result goes down it.
//
// Few ranks wait for many, and no rank reads more than it combines: for many ranks with short
// messages, and as a baseline. A rank's partial sum is of a run of neighbours, so contributions are
// combined in rank order, but in the grouping of the tree: floating-point sums differ in their last
// bits from those of algorithms that sum in turn. n ranks, m bytes, T segments: 2T + 1 ticks, 2
// ceil(log2 n) hops for a segment; rank 0 combines log2 n partial sums.
//
// Worked example, 4 ranks, one segment:
//   up:   all: landing.0 = own; 0: landing.0 += landing[1].0; 2: landing.0 += landing[3].0
//         0: landing.0 += landing[2].0
//   down: 0: output = finish(landing.0), landing.1 = output; 1, 2: copy landing[0].1 out, 2 also to
//         landing.1; 3: copies landing[2].1 out
// A segment goes up before the one before it goes down.
//
// Slots (plan-S3): segment q goes up in slot 2q and down in slot 2q + 1. Slot 2q is that in which
// q-2 went down: I wait until my children have it. Slot 2q + 1 is that in which q-1 went up: my
// parent took it before it gave me q. The last wait is for the next exchange.
#include <algorithm>

#include "core/plan/algorithm.h"
#include "ops/algorithms/binomial.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.length_bytes > 0; }

struct Tree {
  explicit Tree(const Problem& problem)
      : p(problem),
        segment(p.slot_bytes / (SizeOf(AccumulatorOf(p.dtype)) / SizeOf(p.dtype))),
        segments(NumSegments(p.length_bytes, segment)),
        me(static_cast<int16_t>(p.me)),
        children(ChildrenOf(p.me, p.size)) {}

  uint64_t BytesOf(uint32_t q) const { return std::min(segment, p.length_bytes - q * segment); }
  Buffer Slot(int32_t rank, uint32_t slot) const {
    return {Place::kLanding, static_cast<int16_t>(rank), slot, 0};
  }
  // The tick a rank signals when segment q has gone up from it, and down to it.
  uint32_t UpTick(uint32_t q) const { return q == 0 ? 2 : 2 * q + 1; }
  uint32_t DownTick(uint32_t q) const { return q + 1 == segments ? 2 * q + 3 : 2 * q + 4; }
  void Await(int32_t peer, uint32_t tick, Schedule* out) const {
    out->steps.push_back(
        {.kind = StepKind::kWait, .peer = static_cast<int16_t>(peer), .tick = tick});
  }
  // Until the slot in which segment q will go up has been read.
  void AwaitSlot(uint32_t q, Schedule* out) const {
    for (int32_t child : children)
      if (q >= 2) Await(child, DownTick(q - 2), out);
  }

  void Up(uint32_t q, Schedule* out) const {
    AwaitSlot(q, out);
    out->steps.push_back({.kind = StepKind::kBeginSum,
                          .dst = Slot(me, 2 * q),
                          .input_offset = q * segment,
                          .length_bytes = BytesOf(q)});
    for (int32_t child : children) {
      Await(child, UpTick(q), out);
      out->steps.push_back({.kind = StepKind::kCombineSums,
                            .dst = Slot(me, 2 * q),
                            .src = Slot(me, 2 * q),
                            .also = Slot(child, 2 * q),
                            .length_bytes = BytesOf(q)});
    }
    out->steps.push_back({.kind = StepKind::kSignal, .tick = UpTick(q)});
  }

  void Down(uint32_t q, Schedule* out) const {
    const Buffer output{Place::kOutput, me, 0, q * segment};
    if (me > 0) Await(ParentOf(me), DownTick(q), out);
    out->steps.push_back({.kind = me > 0 ? StepKind::kCopy : StepKind::kFinishSum,
                          .dst = output,
                          .src = me > 0 ? Slot(ParentOf(me), 2 * q + 1) : Slot(me, 2 * q),
                          .length_bytes = BytesOf(q)});
    if (!children.empty())
      out->steps.push_back({.kind = StepKind::kCopy,
                            .dst = Slot(me, 2 * q + 1),
                            .src = output,
                            .length_bytes = BytesOf(q)});
    out->steps.push_back({.kind = StepKind::kSignal, .tick = DownTick(q)});
  }

  const Problem& p;
  uint64_t segment;
  uint32_t segments;
  int16_t me;
  std::vector<int32_t> children;
};

Schedule Build(const Problem& p) {
  const Tree tree(p);
  const uint32_t slots = 2 * tree.segments;
  Schedule out{
      .algorithm = "tree", .steps = {}, .ticks = slots + 1, .slots = slots, .reads_begin = false};
  tree.Up(0, &out);
  for (uint32_t q = 0; q < tree.segments; ++q) {
    if (q + 1 < tree.segments) tree.Up(q + 1, &out);
    tree.Down(q, &out);
  }
  tree.AwaitSlot(tree.segments, &out);
  return out;
}

constexpr Algorithm kAlgorithm{.name = "tree",
                               .kind = Kind::kAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .association = Association::kTree};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
