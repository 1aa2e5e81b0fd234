// reducescatter/hierarchical: each host adds up in its memory what its members have, and sends each
// rank of another host the sum, once.
//
// For members that lie on several hosts, some of them on one. A segment is a chunk of each rank's
// share of the message. A member adds up the own chunk over its host. The chunks of other hosts'
// ranks, one after the other, are cut into as many parts as the host has members; each adds up its
// part over the host, for those ranks. A rank adds up the sums of all hosts of its chunk.
//
// H hosts, m bytes of which host h gets m_h: host h sends m - m_h, and (H-1) m_h arrives. T = the
// longest share in chunks: 3T + 3 ticks.
//
// Steps of segment q, in the order of the worked example:
//   stage    copies the own input for the host
//   sum      adds up the own chunk, and the own part of the others, over the host
//   combine  adds up the sums of the own chunk, host by host; writes the output
// Each ends with a tick; that of stage tells the own host alone.
//
// Worked example, three segments:
//   stage 0, sum 0; stage 1, sum 1, combine 0; stage 2, sum 2, combine 1; combine 2
// While the sums of a segment travel the next one is summed up.
//
// Slots (plan-S3): segment q stages in slot 2q+1 and keeps sums in 2q+2; slot 0 holds what a begin
// stages, unused. Staged input is overwritten by the sums of q+1, once the host has added it up
// (its sum); sums are overwritten by what q+2 stages, once other hosts' ranks have added them up
// (their combine). The next exchange begins with the slot of the sums of the last segment but one.
#include <algorithm>
#include <set>
#include <vector>

#include "core/plan/algorithm.h"
#include "ops/algorithms/hosts.h"

namespace covey {
namespace {

uint64_t WideningOf(const Problem& p) { return SizeOf(AccumulatorOf(p.dtype)) / SizeOf(p.dtype); }

// A slot holds a chunk of every rank, or sums: of a chunk, of a part, and over all hosts.
uint64_t ChunkBytes(const Problem& p) {
  const uint64_t sums = (2 + LinesOfFarPart(p, MembersByHost(p), 1)) * WideningOf(p);
  return p.slot_bytes / kLineBytes / std::max(static_cast<uint64_t>(p.size), sums) * kLineBytes;
}

bool Fits(const Problem& p) { return p.length_bytes > 0 && !p.hosts.empty() && ChunkBytes(p) > 0; }

class Builder {
 public:
  explicit Builder(const Problem& problem)
      : p_(problem),
        widening_(WideningOf(p_)),
        chunk_(ChunkBytes(p_)),
        hosts_(MembersByHost(p_)),
        shares_(p_, hosts_, chunk_),
        segments_(shares_.count()),
        out_(p_, hosts_) {}

  Schedule Build() {
    out_.s.algorithm = "hierarchical";
    out_.s.slots = 2 * segments_ + 1;
    out_.s.reads_begin = false;
    out_.Reach(shares_.Partners());
    Stage(0);
    SumUp(0);
    for (uint32_t q = 0; q < segments_; ++q) {
      if (q + 1 < segments_) {
        Stage(q + 1);
        SumUp(q + 1);
      }
      Combine(q);
    }
    AwaitReaders(segments_);
    return out_.Take(3 * segments_ + 3);
  }

 private:
  const ChunkedShares::Segment& Of(uint32_t q) const { return shares_.Of(q); }
  bool IsAlone() const { return out_.near.size() == 1; }

  uint32_t StageTick(uint32_t q) const { return q == 0 ? 2 : 3 * q + 1; }
  uint32_t SumTick(uint32_t q) const { return q == 0 ? 3 : 3 * q + 2; }
  uint32_t CombineTick(uint32_t q) const { return 3 * q + 6; }

  uint64_t InMessage(int32_t rank, uint32_t q, uint64_t at) const {
    return ShareBegin(p_, rank) + q * chunk_ + at;
  }
  Buffer Staged(int32_t rank, uint32_t q, int32_t chunk, uint64_t at) const {
    return out_.Slot(rank, 2 * q + 1, static_cast<uint64_t>(chunk) * chunk_ + at);
  }
  Buffer OwnSum(uint32_t q, uint64_t at) const {
    return out_.Slot(p_.me, 2 * q + 2, at * widening_);
  }
  Buffer Result(uint32_t q, uint64_t at) const { return OwnSum(q, chunk_ + at); }
  Buffer SumOfPart(int32_t rank, uint32_t q, uint64_t at) const {
    return out_.Slot(rank, 2 * q + 2, (2 * chunk_ + at) * widening_);
  }

  // Until the slot of the sums of segment q-2 has been read.
  void AwaitReaders(uint32_t q) {
    if (q >= 2) out_.Await(Of(q - 2).inside, CombineTick(q - 2));
  }

  // Sums that other members of the host make: all chunks but the own, and all parts but the own.
  void Stage(uint32_t q) {
    AwaitReaders(q);
    if (IsAlone()) return;
    const auto copy = [&](int32_t chunk, uint64_t at, uint64_t length) {
      out_.Copy(Staged(p_.me, q, chunk, at), out_.Input(InMessage(chunk, q, at)), length);
    };
    const ChunkedShares::Segment& segment = Of(q);
    for (const int32_t r : out_.near) {
      if (r == p_.me) continue;
      copy(r, 0, segment.chunks[static_cast<size_t>(r)]);
      for (const Stretch& s : segment.parts[static_cast<size_t>(r)])
        copy(s.rank, s.begin, s.length);
    }
    out_.Signal(StageTick(q), kOwnHost);
  }

  void SumUp(uint32_t q) {
    if (!IsAlone()) {
      out_.Await(out_.near, StageTick(q));
      if (q > 0) out_.Await(out_.near, SumTick(q - 1));
    }
    const auto sum = [&](const Buffer& dst, int32_t chunk, uint64_t at, uint64_t length) {
      if (length == 0) return;
      Buffer staged = Staged(p_.me, q, chunk, at);
      staged.index = kEveryRank;
      out_.s.steps.push_back({.kind = IsAlone() ? StepKind::kBeginSum : StepKind::kSumHost,
                              .dst = dst,
                              .src = staged,
                              .input_offset = InMessage(chunk, q, at),
                              .length_bytes = length});
    };
    sum(OwnSum(q, 0), p_.me, 0, Of(q).chunks[static_cast<size_t>(p_.me)]);
    for (const Stretch& s : Of(q).parts[static_cast<size_t>(p_.me)])
      sum(SumOfPart(p_.me, q, s.at), s.rank, s.begin, s.length);
    out_.Signal(SumTick(q));
  }

  // The place of a host's sum of bytes of the own chunk.
  struct Sum {
    uint64_t begin, end;
    Buffer at;
  };
  // By host, ascending.
  std::vector<std::vector<Sum>> SumsOf(uint32_t q) const {
    std::vector<std::vector<Sum>> sums(hosts_.size());
    for (size_t h = 0; h < hosts_.size(); ++h) {
      if (static_cast<int32_t>(h) == p_.hosts[static_cast<size_t>(p_.me)]) {
        sums[h].push_back({0, Of(q).chunks[static_cast<size_t>(p_.me)], OwnSum(q, 0)});
        continue;
      }
      for (const int32_t r : hosts_[h])
        for (const Stretch& s : Of(q).parts[static_cast<size_t>(r)])
          if (s.rank == p_.me)
            sums[h].push_back({s.begin, s.begin + s.length, SumOfPart(r, q, s.at)});
    }
    return sums;
  }

  void Combine(uint32_t q) {
    const std::vector<std::vector<Sum>> sums = SumsOf(q);
    out_.Await(Of(q).holders, SumTick(q));
    std::set<uint64_t> borders;
    for (const std::vector<Sum>& of_host : sums)
      for (const Sum& sum : of_host) borders.insert({sum.begin, sum.end});
    for (auto end = std::next(borders.begin()); end != borders.end(); ++end) {
      const uint64_t begin = *std::prev(end), length = *end - begin;
      const auto of_host = [&](size_t h) {
        Buffer buffer;
        for (const Sum& sum : sums[h]) {
          if (sum.begin > begin || begin >= sum.end) continue;
          buffer = sum.at;
          buffer.offset += (begin - sum.begin) * widening_;
        }
        return buffer;
      };
      for (size_t h = 1; h < hosts_.size(); ++h)
        out_.s.steps.push_back({.kind = StepKind::kCombineSums,
                                .dst = Result(q, begin),
                                .src = h == 1 ? of_host(0) : Result(q, begin),
                                .also = of_host(h),
                                .length_bytes = length});
    }
    out_.Signal(CombineTick(q));
    if (const uint64_t length = Of(q).chunks[static_cast<size_t>(p_.me)]; length > 0)
      out_.s.steps.push_back({.kind = StepKind::kFinishSum,
                              .dst = out_.Output(q * chunk_),
                              .src = Result(q, 0),
                              .length_bytes = length});
  }

  const Problem& p_;
  const uint64_t widening_;
  const uint64_t chunk_;
  const Hosts hosts_;
  const ChunkedShares shares_;
  const uint32_t segments_;
  HostSchedule out_;
};

Schedule Build(const Problem& p) { return Builder(p).Build(); }

constexpr Algorithm kAlgorithm{
    .name = "hierarchical",
    .kind = Kind::kReducescatter,
    .fits = Fits,
    .build = Build,
    .association = Association::kByHost,
    .prefer = {
        .priority = 3, .min_size = 3, .hosts = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
