// allreduce/doubling: in round d every rank combines its partial sum with that of the rank whose
// number differs in bit d; after log2 n rounds all hold the result.
//
// Recursive doubling, after Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH", IJHPCA 2005, DOI 10.1177/1094342005051521. Where n is no
// power of two, each of the first n - 2^k even ranks first gives its contribution to its neighbour,
// and at last takes the result from it. A partial sum is always of a run of neighbours and the
// lower run comes first: contributions are combined in rank order and on all ranks in the same
// grouping, but not in turn; floating-point sums differ in their last bits from those of algorithms
// that do. Per rank, m bytes, T segments: T (ceil(log2 n) + 1) + 1 ticks at least, m log2 n bytes
// read. On one host `flat` reads from all at once; this is for where a message costs more than its
// bytes.
//
// Worked example, 3 ranks, one segment, rounds 0..2 (0 gives to 1):
//   0: 0, 1: landing.0 = own               1: 1: landing.1 = landing[0].0 op landing[1].0
//                                             2: landing.1 = own
//   2: 1, 2: landing.2 = landing[1].1 op landing[2].1; output = finish(landing.2)
//      0: output = finish(landing[1].2)
//
// Slots (plan-S3): round s (counted over segments) uses slot s, that of round s-3. A slot is read
// in the round after it is written, or as a result before the reader's next round: in any case
// before the reader signals tick s+3. So in round s I wait for tick s of the rank that read slot
// s-3, also where I write nothing: the rank that overwrites it later does not ask again. The last
// wait is for the next exchange.
#include <algorithm>
#include <bit>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.length_bytes > 0; }

struct Doubling {
  explicit Doubling(const Problem& problem)
      : p(problem),
        me(problem.me),
        segment(p.slot_bytes / (SizeOf(AccumulatorOf(p.dtype)) / SizeOf(p.dtype))),
        segments(NumSegments(p.length_bytes, segment)) {
    const auto power = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(p.size)));
    folded = p.size - power;
    first = folded > 0 ? 1 : 0;
    rounds = first + 1 + static_cast<uint32_t>(std::countr_zero(static_cast<uint32_t>(power)));
  }

  // Ranks 0, 2, ... below 2 * folded give their contribution away; the others are numbered.
  bool Gives() const { return me < 2 * folded && me % 2 == 0; }
  bool Takes() const { return me < 2 * folded && me % 2 == 1; }
  int32_t NumberOf(int32_t rank) const { return rank < 2 * folded ? rank / 2 : rank - folded; }
  int32_t RankOf(int32_t number) const {
    return number < folded ? 2 * number + 1 : number + folded;
  }
  int32_t Partner(uint32_t round) const {
    return RankOf(NumberOf(me) ^ (1 << (round - first - 1)));
  }
  // The rank that reads my slot of this round of a segment; -1: no other.
  int32_t Reader(uint32_t round) const {
    if (Gives()) return round == 0 ? me + 1 : -1;
    if (round < first) return -1;
    if (round + 1 < rounds) return Partner(round + 1);
    return Takes() ? me - 1 : -1;
  }

  Buffer Slot(int32_t rank, uint32_t slot) const {
    return {Place::kLanding, static_cast<int16_t>(rank), slot, 0};
  }
  void Await(int32_t peer, uint32_t tick, Schedule* out) const {
    out->steps.push_back(
        {.kind = StepKind::kWait, .peer = static_cast<int16_t>(peer), .tick = tick});
  }
  void AwaitSlot(uint32_t s, Schedule* out) const {
    if (s < 3) return;
    if (const int32_t reader = Reader((s - 3) % rounds); reader >= 0) Await(reader, s, out);
  }
  uint64_t BytesOf(uint32_t q) const { return std::min(segment, p.length_bytes - q * segment); }

  void Combine(uint32_t q, uint32_t s, int32_t other, Schedule* out) const {
    Await(other, s + 1, out);
    out->steps.push_back({.kind = StepKind::kCombineSums,
                          .dst = Slot(me, s),
                          .src = Slot(std::min(me, other), s - 1),
                          .also = Slot(std::max(me, other), s - 1),
                          .length_bytes = BytesOf(q)});
  }

  void Round(uint32_t q, uint32_t round, Schedule* out) const {
    const uint32_t s = q * rounds + round;
    AwaitSlot(s, out);
    const bool begins = round == (Gives() || Takes() ? 0 : first);
    if (begins) {
      out->steps.push_back({.kind = StepKind::kBeginSum,
                            .dst = Slot(me, s),
                            .input_offset = q * segment,
                            .length_bytes = BytesOf(q)});
    } else if (round > first && !Gives()) {
      Combine(q, s, Partner(round), out);
    } else if (round == first && Takes()) {
      Combine(q, s, me - 1, out);
    }
    out->steps.push_back({.kind = StepKind::kSignal, .tick = s + 2});
  }

  void Finish(uint32_t q, Schedule* out) const {
    const uint32_t s = (q + 1) * rounds - 1;
    if (Gives()) Await(me + 1, s + 2, out);
    out->steps.push_back({.kind = StepKind::kFinishSum,
                          .dst = {Place::kOutput, static_cast<int16_t>(me), 0, q * segment},
                          .src = Slot(Gives() ? me + 1 : me, s),
                          .length_bytes = BytesOf(q)});
  }

  const Problem& p;
  int32_t me;
  uint64_t segment;
  uint32_t segments;
  int32_t folded;
  uint32_t first;   // the round in which all numbered ranks have a partial sum
  uint32_t rounds;  // of a segment
};

Schedule Build(const Problem& p) {
  const Doubling doubling(p);
  const uint32_t slots = doubling.segments * doubling.rounds;
  Schedule out{.algorithm = "doubling",
               .steps = {},
               .ticks = slots + 1,
               .slots = slots,
               .reads_begin = false};
  for (uint32_t q = 0; q < doubling.segments; ++q) {
    for (uint32_t round = 0; round < doubling.rounds; ++round) doubling.Round(q, round, &out);
    doubling.Finish(q, &out);
  }
  doubling.AwaitSlot(slots, &out);
  return out;
}

constexpr Algorithm kAlgorithm{.name = "doubling",
                               .kind = Kind::kAllreduce,
                               .fits = Fits,
                               .build = Build,
                               .association = Association::kTree};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
