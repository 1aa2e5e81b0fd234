// allreduce/hierarchical: reduce-scatter in the memory of each host, allreduce of the shares
// between the hosts, all-gather in the memory of each host.
//
// For members that lie on several hosts, some of them on one. Every member carries its share of its
// host's bytes over the network; none carries all. After Horovod's hierarchical allreduce (Sergeev
// and Del Balso, arXiv:1802.05799) and the multi-leader designs of MVAPICH (Bayatpour et al.,
// "Scalable reduction collectives with data partitioning-based multi-leader design", SC 2017,
// DOI 10.1145/3126908.3126954).
//
// The members of a host divide each segment evenly: of L members the i-th has share i. Where hosts
// have unequal numbers, shares of different hosts overlap in part. A *piece* of a segment lies
// between two neighboring borders of all shares of all hosts: each host has one owner of it.
//   two hosts   the owners exchange their partial sums, and both add them up
//   more hosts  a piece is cut into a part per host, whose owner there gets the other hosts' sums
//               of the part and gives back the result
// Either way a host sends 2 (H-1)/H of the message, H hosts, and as much arrives.
//
// Steps of segment q, in the order of the worked example:
//   stage    copies the own input for the host
//   sum      sums up the own share over the host
//   combine  adds up the own pieces (parts) over the hosts
//   gather   with more than two hosts: copies the others' results beside the own, for the host
//   finish   writes the output
// Each but finish ends with a tick, in this order; that of stage tells the own host alone.
//
// Worked example, three segments:
//   stage 0, sum 0; stage 1, combine 0, gather 0, sum 1, finish 0; stage 2, combine 1, gather 1,
//   sum 2, finish 1; combine 2, gather 2, finish 2
// While a segment is written to the output the next one travels.
//
// Slots (plan-S3): segment q stages in slot 3q, keeps partial sums in 3q+1 and results in 3q+2.
// Before they are overwritten those of q-1 have been read: staged input by the host (its sum),
// partial sums by the owners on other hosts (their combine), results by the host (its finish,
// before its next stage) and by the owners (their gather). The next exchange begins with slot 3S,
// S segments, whose readers are the host's, at the sum of the last segment.
#include <algorithm>
#include <set>
#include <vector>

#include "core/plan/algorithm.h"
#include "ops/algorithms/hosts.h"
#include "ops/algorithms/staging.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.length_bytes > 0 && !p.hosts.empty(); }

class Builder {
 public:
  explicit Builder(const Problem& problem)
      : p_(problem),
        widening_(SizeOf(AccumulatorOf(p_.dtype)) / SizeOf(p_.dtype)),
        segment_(p_.slot_bytes / widening_),
        segments_(NumSegments(p_.length_bytes, segment_)),
        own_host_(static_cast<size_t>(p_.hosts[static_cast<size_t>(p_.me)])),
        hosts_(MembersByHost(p_)) {
    full_ = DivisionFor(p_, hosts_, segment_);
    last_ = DivisionFor(p_, hosts_, BytesOf(segments_ - 1));
  }

  Schedule Build() {
    s_ = {.algorithm = "hierarchical",
          .steps = {},
          .ticks = CombineTick(segments_ - 1),
          .slots = 3 * segments_};
    if (Spreads()) s_.ticks = GatherTick(segments_ - 1);
    for (const int32_t near : Near()) s_.host.push_back(static_cast<int16_t>(near));
    std::set<int32_t> reach(Near().begin(), Near().end());
    reach.insert(last_.partners.begin(), last_.partners.end());
    if (segments_ > 1) reach.insert(full_.partners.begin(), full_.partners.end());
    s_.reach.assign(reach.begin(), reach.end());
    SumUp(0);
    for (uint32_t q = 0; q < segments_; ++q) {
      StageNext(q + 1);
      Combine(q);
      if (Spreads()) Gather(q);
      if (q + 1 < segments_) SumUp(q + 1);
      Finish(q);
    }
    return std::move(s_);
  }

 private:
  bool Spreads() const { return hosts_.size() > 2; }
  const std::vector<int32_t>& Near() const { return hosts_[own_host_]; }
  uint64_t BytesOf(uint32_t q) const { return std::min(segment_, p_.length_bytes - q * segment_); }

  uint32_t StageTick(uint32_t q) const { return q == 0 ? 1 : Spreads() ? 4 * q - 1 : 3 * q; }
  uint32_t SumTick(uint32_t q) const { return (Spreads() ? 4 : 3) * q + 2; }
  uint32_t CombineTick(uint32_t q) const { return (Spreads() ? 4 : 3) * q + 4; }
  uint32_t GatherTick(uint32_t q) const { return 4 * q + 5; }

  // All segments but the last are alike.
  const Division& Of(uint32_t q) const { return q + 1 < segments_ ? full_ : last_; }
  ByteRange ShareOf(int32_t rank, uint32_t q) const {
    return Of(q).shares[static_cast<size_t>(rank)];
  }
  const std::vector<Piece>& OwnPieces(uint32_t q) const { return Of(q).own; }
  const std::set<int32_t>& Partners(uint32_t q) const { return Of(q).partners; }

  // The part of a piece that the owner on `host` adds up.
  ByteRange PartOn(const Piece& piece, size_t host) const {
    if (!Spreads()) return {piece.begin, piece.end};
    const uint64_t length = piece.end - piece.begin;
    return {piece.begin + PartOf(length, host, hosts_.size()),
            piece.begin + PartOf(length, host + 1, hosts_.size())};
  }
  // At `begin` of the segment, among partial sums.
  Buffer Sums(int32_t rank, uint32_t slot, uint64_t begin) const {
    return {Place::kLanding, static_cast<int16_t>(rank), slot, begin * widening_};
  }
  template <typename Ranks>
  void Await(const Ranks& ranks, uint32_t tick) {
    for (const int32_t r : ranks)
      if (r != p_.me)
        s_.steps.push_back(
            {.kind = StepKind::kWait, .peer = static_cast<int16_t>(r), .tick = tick});
  }
  void Signal(uint32_t tick, int16_t peer = kEveryRank) {
    s_.steps.push_back({.kind = StepKind::kSignal, .peer = peer, .tick = tick});
  }

  // The begin has staged the first segment.
  void StageNext(uint32_t q) {
    if (Near().size() == 1 || (q == segments_ && segments_ == 1)) return;
    if (q < segments_) {
      Await(Near(), SumTick(q - 1));
      const uint64_t at = q * segment_;
      const ByteRange own = ShareOf(p_.me, q);
      StageForPeers(p_, 3 * q, {at, at + BytesOf(q)}, {at + own.begin, at + own.end}, &s_);
    }
    Signal(StageTick(q), kOwnHost);
  }

  void SumUp(uint32_t q) {
    if (q > 0) {
      Await(Near(), StageTick(q));
      Await(Partners(q - 1), CombineTick(q - 1));
    }
    const ByteRange own = ShareOf(p_.me, q);
    if (own.end > own.begin)
      s_.steps.push_back({.kind = Near().size() == 1 ? StepKind::kBeginSum : StepKind::kSumHost,
                          .dst = Sums(p_.me, 3 * q + 1, own.begin),
                          .src = {Place::kLanding, kEveryRank, 3 * q, own.begin},
                          .input_offset = q * segment_ + own.begin,
                          .length_bytes = own.end - own.begin});
    Signal(SumTick(q));
  }

  void Combine(uint32_t q) {
    Await(Partners(q), SumTick(q));
    if (q > 0) {
      Await(Near(), StageTick(q + 1));
      if (Spreads()) Await(Partners(q - 1), GatherTick(q - 1));
    }
    for (const Piece& piece : OwnPieces(q)) {
      const ByteRange part = PartOn(piece, own_host_);
      if (part.begin == part.end) continue;
      const Buffer result = Sums(p_.me, 3 * q + 2, part.begin);
      for (size_t h = 1; h < hosts_.size(); ++h)
        s_.steps.push_back({.kind = StepKind::kCombineSums,
                            .dst = result,
                            .src = h == 1 ? Sums(piece.owners[0], 3 * q + 1, part.begin) : result,
                            .also = Sums(piece.owners[h], 3 * q + 1, part.begin),
                            .length_bytes = part.end - part.begin});
    }
    Signal(CombineTick(q));
  }

  void Gather(uint32_t q) {
    Await(Partners(q), CombineTick(q));
    for (const Piece& piece : OwnPieces(q)) {
      for (size_t h = 0; h < hosts_.size(); ++h) {
        const ByteRange part = PartOn(piece, h);
        if (h == own_host_ || part.begin == part.end) continue;
        s_.steps.push_back({.kind = StepKind::kCopy,
                            .dst = Sums(p_.me, 3 * q + 2, part.begin),
                            .src = Sums(piece.owners[h], 3 * q + 2, part.begin),
                            .length_bytes = (part.end - part.begin) * widening_});
      }
    }
    Signal(GatherTick(q));
  }

  void Finish(uint32_t q) {
    Await(Near(), Spreads() ? GatherTick(q) : CombineTick(q));
    for (const int32_t r : Near()) {
      const ByteRange share = ShareOf(r, q);
      if (share.begin == share.end) continue;
      s_.steps.push_back(
          {.kind = StepKind::kFinishSum,
           .dst = {Place::kOutput, static_cast<int16_t>(p_.me), 0, q * segment_ + share.begin},
           .src = Sums(r, 3 * q + 2, share.begin),
           .length_bytes = share.end - share.begin});
    }
  }

  const Problem& p_;
  const uint64_t widening_;
  const uint64_t segment_;
  const uint32_t segments_;
  const size_t own_host_;
  const Hosts hosts_;
  Division full_, last_;
  Schedule s_;
};

Schedule Build(const Problem& p) { return Builder(p).Build(); }

constexpr Algorithm kAlgorithm{
    .name = "hierarchical",
    .kind = Kind::kAllreduce,
    .fits = Fits,
    .build = Build,
    .association = Association::kByHost,
    .prefer = {
        .priority = 5, .min_size = 3, .hosts = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
