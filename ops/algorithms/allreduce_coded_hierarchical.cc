// allreduce/coded_hierarchical: sums over each host in its memory, exchanged between hosts as
// codes.
//
// For problems with a codec (core/run/codec.h) whose members lie on several hosts, some of them on
// one, and whose sums may be encoded. As `hierarchical`, which says how segments are divided into
// shares, pieces and parts: every member carries its share of its host's bytes, and what crosses
// between hosts is encoded. With e bytes of codes for the whole message a host sends 2 (H-1)/H e,
// H hosts, and as much arrives; `coded` sends R (P-R) e from a host of R of the P members. Codes of
// single contributions that cross to a host once are no way out: R (H-1) e, more than without a
// codec from 8 members of a host on (int8, two hosts).
//
// So a host's sum is encoded instead of its members' contributions, and with more than two hosts
// the sum of the decoded sums once more, on its way back. Every rank decodes the same codes and
// adds them in the order of hosts: all hold the same bits, which depend on how the ranks lie on
// hosts.
//   error   of a sum, an element, with bound() of codec-D3 and S_h what host h has summed up:
//           sum over h of bound(S_h), and with more than two hosts + bound(sum of the decoded S_h).
//           By codec-D4 the first term is at most that of `coded`, the sum over ranks of
//           bound(x_r), and the second about as much again. fp16 overflows where the sum of a host
//           or of all does, bf16 no sooner than float32.
//   random  codes are drawn by their rank, place and slot: the expectation of a result is the sum
// Contributions whose residuals are fed back are not for it (Problem::encodes_sums): what is left
// out of a sum is no rank's. They take `coded`.
//
// Steps of segment q, in the order of the worked example:
//   stage    copies the own input for the host
//   sum      sums up the own share over the host, and encodes it
//   combine  decodes and adds up the own pieces (parts) over the hosts; with more than two hosts
//            encodes them again
//   gather   with more than two hosts: decodes all parts of the own pieces, for the host
//   finish   writes the output
// Each but finish ends with a tick, in this order; that of stage tells the own host alone.
//
// Worked example, three segments:
//   stage 0, sum 0; stage 1, combine 0, gather 0, sum 1, finish 0; stage 2, combine 1, gather 1,
//   sum 2, finish 1; combine 2, gather 2, finish 2
// While a segment is written to the output the next one travels.
//
// Slots (plan-S3): segment q stages in slot 3q, where the own sum takes the place of the own share,
// which no peer reads; codes are in 3q+1, those of sums at their places in the segment's code,
// those of results behind it; decoded results are in 3q+2. Before they are overwritten those of q-1
// have been read: staged input by the host (its sum), codes of sums by the owners on other hosts
// (their combine), codes of results by them (their gather), results by the host (its finish, before
// its next stage). The next exchange begins with slot 3S, S segments, whose readers are the host's,
// at the sum of the last segment.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "core/plan/algorithm.h"
#include "ops/algorithms/hosts.h"
#include "ops/algorithms/staging.h"

namespace covey {
namespace {

// Whole blocks and whole cache lines: what is encoded at once begins and ends with them.
uint64_t GrainBytes(const Problem& p) {
  return std::lcm(p.form.block_elems * sizeof(float), kLineBytes);
}

// Elements fit a landing slot, and so do two codes of them. 0: not even a grain does.
uint64_t LongestSegment(const Problem& p) {
  const uint64_t grain = GrainBytes(p);
  const uint64_t grains =
      std::min(p.slot_bytes / grain, p.slot_bytes / 2 / TravellingBytes(p.form, grain));
  return grains * grain;
}

bool Fits(const Problem& p) {
  return p.dtype == DType::kF32 && p.encodes_sums && p.length_bytes > 0 && !p.hosts.empty() &&
         LongestSegment(p) > 0;
}

class Builder {
 public:
  explicit Builder(const Problem& problem)
      : p_(problem),
        segment_(LongestSegment(p_)),
        segments_(NumSegments(p_.length_bytes, segment_)),
        own_host_(static_cast<size_t>(p_.hosts[static_cast<size_t>(p_.me)])),
        hosts_(MembersByHost(p_)),
        full_(DivisionFor(p_, hosts_, segment_, GrainBytes(p_))),
        last_(DivisionFor(p_, hosts_, BytesOf(segments_ - 1), GrainBytes(p_))),
        s_(p_, hosts_) {}

  Schedule Build() {
    s_.Reach(last_.partners);
    if (segments_ > 1) s_.Reach(full_.partners);
    s_.s.algorithm = "coded_hierarchical";
    s_.s.reads_begin = false;
    s_.s.slots = 3 * segments_;
    Stage(0);
    SumUp(0);
    for (uint32_t q = 0; q < segments_; ++q) {
      if (q + 1 < segments_ || q > 0) Stage(q + 1);
      Combine(q);
      if (Spreads()) Gather(q);
      if (q + 1 < segments_) SumUp(q + 1);
      Finish(q);
    }
    return s_.Take(Spreads() ? GatherTick(segments_ - 1) : CombineTick(segments_ - 1));
  }

 private:
  bool Spreads() const { return hosts_.size() > 2; }
  uint64_t BytesOf(uint32_t q) const { return std::min(segment_, p_.length_bytes - q * segment_); }

  uint32_t TicksEach() const { return Spreads() ? 4 : 3; }
  uint32_t StageTick(uint32_t q) const { return q == 0 ? 2 : TicksEach() * (q - 1) + 4; }
  uint32_t SumTick(uint32_t q) const { return TicksEach() * q + 3; }
  uint32_t CombineTick(uint32_t q) const { return TicksEach() * q + 5; }
  uint32_t GatherTick(uint32_t q) const { return TicksEach() * q + 6; }

  // All segments but the last are alike.
  const Division& Of(uint32_t q) const { return q + 1 < segments_ ? full_ : last_; }
  ByteRange ShareOf(int32_t rank, uint32_t q) const {
    return Of(q).shares[static_cast<size_t>(rank)];
  }

  // The part of a piece that the owner on `host` adds up.
  ByteRange PartOn(const Piece& piece, size_t host) const {
    if (!Spreads()) return {piece.begin, piece.end};
    const uint64_t length = piece.end - piece.begin, grain = GrainBytes(p_);
    return {piece.begin + PartOf(length, host, hosts_.size(), grain),
            piece.begin + PartOf(length, host + 1, hosts_.size(), grain)};
  }
  // Calls fn(part, host) for each part that is not empty; without parts once, for the piece.
  template <typename Fn>
  void ForEachPart(const Piece& piece, Fn fn) const {
    for (size_t h = 0; h < (Spreads() ? hosts_.size() : 1); ++h)
      if (const ByteRange part = PartOn(piece, h); part.begin < part.end) fn(part, h);
  }

  // At `begin` of segment q.
  Buffer Staged(int32_t rank, uint32_t q, uint64_t begin) const {
    return s_.Slot(rank, 3 * q, begin);
  }
  Buffer Result(int32_t rank, uint32_t q, uint64_t begin) const {
    return s_.Slot(rank, 3 * q + 2, begin);
  }
  Buffer CodeOfSum(int32_t rank, uint32_t q, uint64_t begin) const {
    return s_.Slot(rank, 3 * q + 1, TravellingBytes(p_.form, begin));
  }
  Buffer CodeOfResult(int32_t rank, uint32_t q, uint64_t begin) const {
    return s_.Slot(rank, 3 * q + 1, TravellingBytes(p_.form, segment_ + begin));
  }

  void Encode(const Buffer& code, const Buffer& sum, uint32_t q, ByteRange part) {
    s_.s.steps.push_back({.kind = StepKind::kEncodeSum,
                          .dst = code,
                          .src = sum,
                          .input_offset = q * segment_ + part.begin,
                          .length_bytes = part.end - part.begin});
  }
  void Decode(StepKind kind, const Buffer& sum, const Buffer& code, ByteRange part) {
    s_.s.steps.push_back(
        {.kind = kind, .dst = sum, .src = code, .length_bytes = part.end - part.begin});
  }

  // One more than there are segments: it says that the last is read.
  void Stage(uint32_t q) {
    if (s_.near.size() == 1) return;
    if (q < segments_) {
      if (q > 0) s_.Await(s_.near, SumTick(q - 1));
      const uint64_t at = q * segment_;
      const ByteRange own = ShareOf(p_.me, q);
      StageForPeers(p_, 3 * q, {at, at + BytesOf(q)}, {at + own.begin, at + own.end}, &s_.s);
    }
    s_.Signal(StageTick(q), kOwnHost);
  }

  void SumUp(uint32_t q) {
    s_.Await(s_.near, StageTick(q));
    if (q > 0) s_.Await(Of(q - 1).partners, CombineTick(q - 1));
    const ByteRange own = ShareOf(p_.me, q);
    if (own.end > own.begin)
      s_.s.steps.push_back({.kind = s_.near.size() == 1 ? StepKind::kBeginSum : StepKind::kSumHost,
                            .dst = Staged(p_.me, q, own.begin),
                            .src = Staged(kEveryRank, q, own.begin),
                            .input_offset = q * segment_ + own.begin,
                            .length_bytes = own.end - own.begin});
    for (const Piece& piece : Of(q).own)
      ForEachPart(piece, [&](ByteRange part, size_t) {
        Encode(CodeOfSum(p_.me, q, part.begin), Staged(p_.me, q, part.begin), q, part);
      });
    s_.Signal(SumTick(q));
  }

  void Combine(uint32_t q) {
    s_.Await(Of(q).partners, SumTick(q));
    if (q > 0) {
      if (s_.near.size() > 1) s_.Await(s_.near, StageTick(q + 1));
      if (Spreads()) s_.Await(Of(q - 1).partners, GatherTick(q - 1));
    }
    for (const Piece& piece : Of(q).own) {
      const ByteRange part = PartOn(piece, own_host_);
      if (part.begin == part.end) continue;
      const Buffer result = Result(p_.me, q, part.begin);
      for (size_t h = 0; h < hosts_.size(); ++h)
        Decode(h == 0 ? StepKind::kDecodeSum : StepKind::kAddDecoded, result,
               CodeOfSum(piece.owners[h], q, part.begin), part);
      if (Spreads()) Encode(CodeOfResult(p_.me, q, part.begin), result, q, part);
    }
    s_.Signal(CombineTick(q));
  }

  // The own part, too: all ranks hold what is decoded.
  void Gather(uint32_t q) {
    s_.Await(Of(q).partners, CombineTick(q));
    for (const Piece& piece : Of(q).own)
      ForEachPart(piece, [&](ByteRange part, size_t h) {
        Decode(StepKind::kDecodeSum, Result(p_.me, q, part.begin),
               CodeOfResult(piece.owners[h], q, part.begin), part);
      });
    s_.Signal(GatherTick(q));
  }

  void Finish(uint32_t q) {
    s_.Await(s_.near, Spreads() ? GatherTick(q) : CombineTick(q));
    for (const int32_t r : s_.near) {
      const ByteRange share = ShareOf(r, q);
      if (share.begin == share.end) continue;
      s_.s.steps.push_back({.kind = StepKind::kFinishSum,
                            .dst = s_.Output(q * segment_ + share.begin),
                            .src = Result(r, q, share.begin),
                            .length_bytes = share.end - share.begin});
    }
  }

  const Problem& p_;
  const uint64_t segment_;
  const uint32_t segments_;
  const size_t own_host_;
  const Hosts hosts_;
  const Division full_, last_;
  HostSchedule s_;
};

Schedule Build(const Problem& p) { return Builder(p).Build(); }

constexpr Algorithm kAlgorithm{
    .name = "coded_hierarchical",
    .kind = Kind::kAllreduce,
    .fits = Fits,
    .build = Build,
    .association = Association::kByHost,
    .codes = true,
    .prefer = {
        .priority = 1, .min_size = 3, .hosts = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
