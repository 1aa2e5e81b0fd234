// broadcast/hierarchical: each byte crosses to every other host once, and every member of a host
// carries its share of that.
//
// For members that lie on several hosts, some of them on one. The members of a host divide each
// segment evenly. Where hosts have unequal numbers, shares of different hosts overlap in part: a
// *piece* lies between two neighboring borders of all shares, and each host has one owner of it.
// With more than two hosts a piece is cut into a part for each host but the root's: the owner there
// gets it from the root's host and passes it on to the others. This is the scatter and allgather of
// van de Geijn ("On global combine operations", J. Parallel Distrib. Comput. 1994,
// DOI 10.1006/jpdc.1994.1091) between hosts.
//
// H hosts, m bytes: the root's host sends m, each other (H-2)/(H-1) m; as much as m arrives.
//
// Worked example, ranks 0 1 and 2 3 on two hosts, root 0, a segment of two shares a b:
//   0: stages a b; output at the end
//   1: slot <- b of rank 0's slot; output <- a b of rank 0's slot
//   2: slot <- a of rank 0; waits for 3; output <- a of its slot, b of 3's
//   3: slot <- b of rank 1; waits for 2; output <- a of 2's slot, b of its own
// Ticks of segment q: 3q+1 the root has staged it (of segment 0: the begin); 3q+2 another member
// has its share, or its own parts of it; 3q+3 also the parts that other hosts pass on.
//
// Slots (plan-S3): segment q lies in slot q. Before it is overwritten by q+3 the own host has read
// it (each member signals a later segment after that), and so have the partners on other hosts.
#include <set>
#include <vector>

#include "core/plan/algorithm.h"
#include "ops/algorithms/hosts.h"

namespace covey {
namespace {

bool Fits(const Problem& p) { return p.length_bytes > 0 && !p.hosts.empty(); }

class Builder {
 public:
  explicit Builder(const Problem& problem)
      : p_(problem),
        segments_(NumSegments(p_.length_bytes, p_.slot_bytes)),
        hosts_(MembersByHost(p_)),
        own_host_(HostOf(p_.me)),
        root_host_(HostOf(p_.root)),
        out_(p_, hosts_) {
    full_ = DivisionFor(p_, hosts_, p_.slot_bytes);
    last_ = DivisionFor(p_, hosts_, BytesOf(segments_ - 1));
  }

  Schedule Build() {
    out_.s.algorithm = "hierarchical";
    out_.s.slots = segments_;
    out_.Reach(last_.partners);
    if (segments_ > 1) out_.Reach(full_.partners);
    if (own_host_ == root_host_) {
      for (uint32_t q = 0; q < segments_; ++q) p_.me == p_.root ? Stage(q) : Pass(q);
      AwaitSlot(segments_);
      if (p_.me == p_.root) out_.Copy(out_.Output(0), out_.Input(0), p_.length_bytes);
    } else {
      Receive(0);
      for (uint32_t q = 0; q < segments_; ++q) {
        if (Spreads()) Gather(q);
        if (q + 1 < segments_) Receive(q + 1);
        Finish(q);
      }
    }
    return out_.Take(3 * segments_);
  }

 private:
  // All segments but the last are alike.
  const Division& Of(uint32_t q) const { return q + 1 < segments_ ? full_ : last_; }

  bool Spreads() const { return hosts_.size() > 2; }
  size_t HostOf(int32_t r) const { return static_cast<size_t>(p_.hosts[static_cast<size_t>(r)]); }
  uint64_t BytesOf(uint32_t q) const {
    return std::min(p_.slot_bytes, p_.length_bytes - q * p_.slot_bytes);
  }
  uint32_t StageTick(uint32_t q) const { return 3 * q + 1; }
  uint32_t PassTick(uint32_t q) const { return 3 * q + 2; }
  uint32_t GatherTick(uint32_t q) const { return 3 * q + 3; }

  // The part of a piece that crosses from the root's host to `host`, another.
  ByteRange PartFor(const Piece& piece, size_t host) const {
    const size_t index = host - (host > root_host_ ? 1 : 0);
    const uint64_t length = piece.end - piece.begin;
    return {piece.begin + PartOf(length, index, hosts_.size() - 1),
            piece.begin + PartOf(length, index + 1, hosts_.size() - 1)};
  }

  // Root's host: until what lay in the slot of segment q has been read.
  void AwaitSlot(uint32_t q) {
    if (q < 3) return;
    if (p_.me == p_.root) out_.Await(out_.near, PassTick(q - 2));
    out_.Await(Of(q - 3).partners, PassTick(q - 3));
  }

  // The begin has staged the first segment.
  void Stage(uint32_t q) {
    if (q == 0) return;
    AwaitSlot(q);
    out_.Copy(out_.Slot(p_.me, q, 0), out_.Input(q * p_.slot_bytes), BytesOf(q));
    out_.Signal(StageTick(q));
  }

  // Another member of the root's host.
  void Pass(uint32_t q) {
    out_.Await(std::vector<int32_t>{p_.root}, StageTick(q));
    AwaitSlot(q);
    const ByteRange own = Of(q).shares[static_cast<size_t>(p_.me)];
    out_.Copy(out_.Slot(p_.me, q, own.begin), out_.Slot(p_.root, q, own.begin),
              own.end - own.begin);
    out_.Signal(PassTick(q));
    out_.Copy(out_.Output(q * p_.slot_bytes), out_.Slot(p_.root, q, 0), BytesOf(q));
  }

  // The other hosts.
  void Receive(uint32_t q) {
    if (q >= 3 && !Spreads()) out_.Await(out_.near, PassTick(q - 1));
    std::set<int32_t> senders;
    for (const Piece& piece : Of(q).own) senders.insert(piece.owners[root_host_]);
    for (const int32_t r : senders)
      out_.Await(std::vector<int32_t>{r}, r == p_.root ? StageTick(q) : PassTick(q));
    for (const Piece& piece : Of(q).own) CopyPart(piece, q, own_host_, piece.owners[root_host_]);
    out_.Signal(PassTick(q));
  }

  void Gather(uint32_t q) {
    for (const int32_t r : Of(q).partners)
      if (HostOf(r) != root_host_) out_.Await(std::vector<int32_t>{r}, PassTick(q));
    for (const Piece& piece : Of(q).own)
      for (size_t h = 0; h < hosts_.size(); ++h)
        if (h != own_host_ && h != root_host_) CopyPart(piece, q, h, piece.owners[h]);
    out_.Signal(GatherTick(q));
  }

  void CopyPart(const Piece& piece, uint32_t q, size_t host, int32_t from) {
    const ByteRange part = PartFor(piece, host);
    out_.Copy(out_.Slot(p_.me, q, part.begin), out_.Slot(from, q, part.begin),
              part.end - part.begin);
  }

  void Finish(uint32_t q) {
    out_.Await(out_.near, Spreads() ? GatherTick(q) : PassTick(q));
    for (const int32_t r : out_.near) {
      const ByteRange share = Of(q).shares[static_cast<size_t>(r)];
      out_.Copy(out_.Output(q * p_.slot_bytes + share.begin), out_.Slot(r, q, share.begin),
                share.end - share.begin);
    }
  }

  const Problem& p_;
  const uint32_t segments_;
  const Hosts hosts_;
  const size_t own_host_, root_host_;
  HostSchedule out_;
  Division full_, last_;
};

Schedule Build(const Problem& p) { return Builder(p).Build(); }

constexpr Algorithm kAlgorithm{
    .name = "hierarchical",
    .kind = Kind::kBroadcast,
    .fits = Fits,
    .build = Build,
    .prefer = {
        .priority = 1, .min_size = 3, .hosts = true, .above = &SelectorSettings::flat_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
