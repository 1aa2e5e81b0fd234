// allgather/hierarchical: the rows of each rank cross to every other host once, and the members of
// a host receive even parts of all that comes to it.
//
// For members that lie on several hosts, some of them on one. A segment is a chunk of each rank's
// rows. Those of other hosts' ranks, one after the other, are cut into as many parts as the host
// has members; each gets its part into its landing slot, where the others read it. With equal
// hosts and rows the i-th member of a host gets the rows of the i-th of each other. A host of one
// member copies what it gets straight to the output.
//
// H hosts, m_h bytes of the ranks of host h: host h sends (H-1) m_h, and what the others have
// arrives once. T = the longest rows in chunks: 2T + 2 ticks. A slot holds a chunk and a part.
//
// Worked example, ranks 0 1 and 2 3 on two hosts, segment q (in slot q+1; slot 0 holds what a begin
// stages, unused), rank 0:
//   stage: slot <- chunk q; wait 2 (its ticks for q); slot <- chunk of 2, tick for rank 1 alone;
//   wait 1; output <- own input, chunk of 1 and part of 1 (of rank 3) from 1's slot, own part
// Before a segment is received the next one is staged.
//
// Slots (plan-S3): segment q overwrites the slot of q-3. A member that has staged q-1 has received
// q-3 and written it to its output: all that read the slot are waited for, also at the end.
#include <algorithm>
#include <vector>

#include "core/plan/algorithm.h"
#include "ops/algorithms/hosts.h"

namespace covey {
namespace {

uint64_t ChunkBytes(const Problem& p) {
  const uint64_t lines = p.slot_bytes / kLineBytes;
  return lines / (1 + LinesOfFarPart(p, MembersByHost(p), 2)) * kLineBytes;
}

bool Fits(const Problem& p) { return !p.hosts.empty() && ChunkBytes(p) > 0; }

class Builder {
 public:
  explicit Builder(const Problem& problem)
      : p_(problem),
        chunk_(ChunkBytes(p_)),
        hosts_(MembersByHost(p_)),
        shares_(p_, hosts_, chunk_),
        segments_(shares_.count()),
        out_(p_, hosts_) {
    uint64_t begin = 0;
    for (const uint64_t rows : p_.shares) {
      output_begins_.push_back(begin);
      begin += rows;
    }
  }

  Schedule Build() {
    out_.s.algorithm = "hierarchical";
    out_.s.slots = segments_ + 1;
    out_.s.reads_begin = false;
    out_.Reach(shares_.Partners());
    Stage(0);
    for (uint32_t q = 0; q < segments_; ++q) {
      if (q + 1 < segments_) Stage(q + 1);
      Receive(q);
      Finish(q);
    }
    AwaitSlot(segments_);
    return out_.Take(2 * segments_ + 2);
  }

 private:
  const ChunkedShares::Segment& Of(uint32_t q) const { return shares_.Of(q); }
  bool IsAlone() const { return out_.near.size() == 1; }

  uint32_t StageTick(uint32_t q) const { return q == 0 ? 2 : 2 * q + 1; }
  uint32_t ReceiveTick(uint32_t q) const { return 2 * q + 4; }

  Buffer ChunkOf(int32_t rank, uint32_t q, uint64_t at) const { return out_.Slot(rank, q + 1, at); }
  Buffer PartOfMember(int32_t rank, uint32_t q, uint64_t at) const {
    return out_.Slot(rank, q + 1, chunk_ + at);
  }
  Buffer RowsOf(int32_t rank, uint32_t q, uint64_t at) const {
    return out_.Output(output_begins_[static_cast<size_t>(rank)] + q * chunk_ + at);
  }

  void AwaitSlot(uint32_t q) {
    if (q < 3) return;
    out_.Await(out_.near, StageTick(q - 1));
    out_.Await(Of(q - 3).holders, StageTick(q - 1));
  }

  void Stage(uint32_t q) {
    AwaitSlot(q);
    out_.Copy(ChunkOf(p_.me, q, 0), out_.Input(q * chunk_),
              Of(q).chunks[static_cast<size_t>(p_.me)]);
    out_.Signal(StageTick(q));
  }

  void Receive(uint32_t q) {
    out_.Await(Of(q).inside, StageTick(q));
    if (IsAlone()) return;
    for (const Stretch& s : Of(q).parts[static_cast<size_t>(p_.me)])
      out_.Copy(PartOfMember(p_.me, q, s.at), ChunkOf(s.rank, q, s.begin), s.length);
    out_.Signal(ReceiveTick(q), kOwnHost);
  }

  void Finish(uint32_t q) {
    const ChunkedShares::Segment& segment = Of(q);
    out_.Copy(RowsOf(p_.me, q, 0), out_.Input(q * chunk_),
              segment.chunks[static_cast<size_t>(p_.me)]);
    out_.Await(out_.near, ReceiveTick(q));
    for (const int32_t r : out_.near) {
      if (r != p_.me)
        out_.Copy(RowsOf(r, q, 0), ChunkOf(r, q, 0), segment.chunks[static_cast<size_t>(r)]);
      for (const Stretch& s : segment.parts[static_cast<size_t>(r)])
        out_.Copy(RowsOf(s.rank, q, s.begin),
                  IsAlone() ? ChunkOf(s.rank, q, s.begin) : PartOfMember(r, q, s.at), s.length);
    }
  }

  const Problem& p_;
  const uint64_t chunk_;
  const Hosts hosts_;
  const ChunkedShares shares_;
  const uint32_t segments_;
  HostSchedule out_;
  std::vector<uint64_t> output_begins_;  // by member
};

Schedule Build(const Problem& p) { return Builder(p).Build(); }

constexpr Algorithm kAlgorithm{
    .name = "hierarchical",
    .kind = Kind::kAllgather,
    .fits = Fits,
    .build = Build,
    .prefer = {
        .priority = 1, .min_size = 3, .hosts = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
