// Members by host, and bytes divided among those of a host: what algorithms of two levels have in
// common.
#ifndef COVEY_OPS_ALGORITHMS_HOSTS_H_
#define COVEY_OPS_ALGORITHMS_HOSTS_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "core/plan/schedule.h"
#include "ops/algorithms/staging.h"

namespace covey {

using Hosts = std::vector<std::vector<int32_t>>;  // members, by host

// REQUIRES: p.hosts is not empty.
inline Hosts MembersByHost(const Problem& p) {
  Hosts hosts(static_cast<size_t>(*std::max_element(p.hosts.begin(), p.hosts.end())) + 1);
  for (int32_t r = 0; r < p.size; ++r)
    hosts[static_cast<size_t>(p.hosts[static_cast<size_t>(r)])].push_back(r);
  return hosts;
}

inline constexpr uint64_t kLineBytes = 64;

// Where part `index` of `count` begins in `length` bytes: whole grains.
inline uint64_t PartOf(uint64_t length, size_t index, size_t count, uint64_t grain = kLineBytes) {
  const uint64_t grains = (length + grain - 1) / grain;
  return std::min(length, grains * index / count * grain);
}

// By member: its part of `bytes` that its host's members divide evenly.
inline std::vector<ByteRange> SharesOf(const Hosts& hosts, uint64_t bytes, uint64_t grain) {
  std::vector<ByteRange> shares;
  for (const std::vector<int32_t>& members : hosts) {
    for (size_t i = 0; i < members.size(); ++i) {
      const auto r = static_cast<size_t>(members[i]);
      if (r >= shares.size()) shares.resize(r + 1);
      shares[r] = {PartOf(bytes, i, members.size(), grain),
                   PartOf(bytes, i + 1, members.size(), grain)};
    }
  }
  return shares;
}

// Bytes [begin, end) between two neighboring borders of all shares, and the member that owns them,
// by host.
struct Piece {
  uint64_t begin, end;
  std::vector<int32_t> owners;
};

inline std::vector<Piece> PiecesOf(const Hosts& hosts, uint64_t bytes, uint64_t grain) {
  const std::vector<ByteRange> shares = SharesOf(hosts, bytes, grain);
  std::set<uint64_t> borders{bytes};
  for (const ByteRange& share : shares) borders.insert(share.begin);
  std::vector<Piece> pieces;
  for (auto end = std::next(borders.begin()); end != borders.end(); ++end) {
    Piece piece{*std::prev(end), *end, {}};
    for (const std::vector<int32_t>& members : hosts)
      for (const int32_t r : members)
        if (const ByteRange& share = shares[static_cast<size_t>(r)];
            share.begin <= piece.begin && piece.end <= share.end)
          piece.owners.push_back(r);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// A segment of so many bytes, as it concerns one member.
struct Division {
  std::vector<ByteRange> shares;  // by member
  std::vector<Piece> own;         // that this member owns
  std::set<int32_t> partners;     // the owners of the own pieces on other hosts
};

// Borders are whole grains from the segment's begin.
inline Division DivisionFor(const Problem& p, const Hosts& hosts, uint64_t bytes,
                            uint64_t grain = kLineBytes) {
  const auto own_host = static_cast<size_t>(p.hosts[static_cast<size_t>(p.me)]);
  Division d{.shares = SharesOf(hosts, bytes, grain), .own = {}, .partners = {}};
  for (Piece& piece : PiecesOf(hosts, bytes, grain)) {
    if (piece.owners[own_host] != p.me) continue;
    d.partners.insert(piece.owners.begin(), piece.owners.end());
    d.own.push_back(std::move(piece));
  }
  d.partners.erase(p.me);
  return d;
}

// Bytes [begin, begin + length) of the chunk of `rank`, which lie `at` bytes from where the part of
// a member begins.
struct Stretch {
  int32_t rank;
  uint64_t begin, length, at;
};

// By member: its part of the chunks of other hosts' ranks. The chunks stand one after the other, in
// group order, and the members of a host divide them evenly. `chunks`: bytes, by member.
inline std::vector<std::vector<Stretch>> FarPartsOf(const Problem& p, const Hosts& hosts,
                                                    const std::vector<uint64_t>& chunks) {
  std::vector<std::vector<Stretch>> parts(chunks.size());
  for (size_t h = 0; h < hosts.size(); ++h) {
    const std::vector<int32_t>& members = hosts[h];
    uint64_t total = 0;
    for (size_t r = 0; r < chunks.size(); ++r)
      if (p.hosts[r] != static_cast<int32_t>(h)) total += chunks[r];
    uint64_t position = 0;
    size_t i = 0;
    for (size_t r = 0; r < chunks.size(); ++r) {
      if (p.hosts[r] == static_cast<int32_t>(h)) continue;
      for (uint64_t done = 0; done < chunks[r];) {
        while (PartOf(total, i + 1, members.size()) <= position) ++i;
        const uint64_t end = PartOf(total, i + 1, members.size());
        const uint64_t length = std::min(chunks[r] - done, end - position);
        parts[static_cast<size_t>(members[i])].push_back(
            {static_cast<int32_t>(r), done, length, position - PartOf(total, i, members.size())});
        done += length;
        position += length;
      }
    }
  }
  return parts;
}

// Lines in a member's part of far chunks, at most, where a chunk has one line: with c lines at most
// c times as many. Counts hosts with at least `members` members only.
inline uint64_t LinesOfFarPart(const Problem& p, const Hosts& hosts, size_t members) {
  uint64_t most = 0;
  for (const std::vector<int32_t>& host : hosts) {
    const uint64_t far = static_cast<uint64_t>(p.size) - host.size();
    if (host.size() >= members) most = std::max(most, (far + host.size() - 1) / host.size());
  }
  return most;
}

// The segments of a message that has a share for each member: a chunk of each share.
class ChunkedShares {
 public:
  struct Segment {
    std::vector<uint64_t> chunks;             // bytes, by member
    std::vector<std::vector<Stretch>> parts;  // by member
    std::vector<int32_t> inside;              // the ranks whose chunks are in the own part
    std::vector<int32_t> holders;             // the members whose parts hold the own chunk
  };

  ChunkedShares(const Problem& p, const Hosts& hosts, uint64_t chunk_bytes)
      : count_(NumSegments(*std::max_element(p.shares.begin(), p.shares.end()), chunk_bytes)) {
    for (uint32_t q = 0; q < count_; ++q) {
      std::vector<uint64_t> chunks;
      for (const uint64_t share : p.shares)
        chunks.push_back(std::min(chunk_bytes, share - std::min(share, q * chunk_bytes)));
      if (q == 0 || chunks != different_.back().chunks)
        different_.push_back(SegmentOf(p, hosts, std::move(chunks)));
      index_.push_back(different_.size() - 1);
    }
  }

  uint32_t count() const { return count_; }
  const Segment& Of(uint32_t q) const { return different_[index_[q]]; }
  // Those on other hosts that the own ticks concern.
  std::set<int32_t> Partners() const {
    std::set<int32_t> partners;
    for (const Segment& segment : different_) {
      partners.insert(segment.inside.begin(), segment.inside.end());
      partners.insert(segment.holders.begin(), segment.holders.end());
    }
    return partners;
  }

 private:
  static Segment SegmentOf(const Problem& p, const Hosts& hosts, std::vector<uint64_t> chunks) {
    Segment segment{.parts = FarPartsOf(p, hosts, chunks)};
    segment.chunks = std::move(chunks);
    for (size_t r = 0; r < segment.parts.size(); ++r) {
      for (const Stretch& s : segment.parts[r]) {
        if (static_cast<int32_t>(r) == p.me) segment.inside.push_back(s.rank);
        if (s.rank == p.me) segment.holders.push_back(static_cast<int32_t>(r));
      }
    }
    return segment;
  }

  const uint32_t count_;
  std::vector<Segment> different_;  // from the one before
  std::vector<size_t> index_;       // by segment
};

// A schedule of two levels under construction: waits, signals, the members concerned.
class HostSchedule {
 public:
  HostSchedule(const Problem& problem, const Hosts& hosts)
      : me(static_cast<int16_t>(problem.me)),
        near(hosts[static_cast<size_t>(problem.hosts[static_cast<size_t>(problem.me)])]),
        reach_(near.begin(), near.end()) {}

  template <typename Ranks>
  void Await(const Ranks& ranks, uint32_t tick) {
    for (const int32_t r : ranks)
      if (r != me && tick > 1)
        s.steps.push_back({.kind = StepKind::kWait, .peer = static_cast<int16_t>(r), .tick = tick});
  }
  void Signal(uint32_t tick, int16_t peer = kEveryRank) {
    s.steps.push_back({.kind = StepKind::kSignal, .peer = peer, .tick = tick});
  }
  void Copy(const Buffer& dst, const Buffer& src, uint64_t length) {
    if (length > 0)
      s.steps.push_back({.kind = StepKind::kCopy, .dst = dst, .src = src, .length_bytes = length});
  }
  Buffer Slot(int32_t rank, uint32_t slot, uint64_t offset) const {
    return {Place::kLanding, static_cast<int16_t>(rank), slot, offset};
  }
  Buffer Input(uint64_t offset) const { return {Place::kInput, me, 0, offset}; }
  Buffer Output(uint64_t offset) const { return {Place::kOutput, me, 0, offset}; }

  // They wait for ticks of this rank, as the members of its host do.
  template <typename Ranks>
  void Reach(const Ranks& ranks) {
    reach_.insert(ranks.begin(), ranks.end());
  }

  // plan-S5: the last signal is of the last tick.
  Schedule Take(uint32_t ticks) {
    s.ticks = ticks;
    s.host.assign(near.begin(), near.end());
    s.reach.assign(reach_.begin(), reach_.end());
    const auto last = std::find_if(s.steps.rbegin(), s.steps.rend(),
                                   [](const Step& step) { return step.kind == StepKind::kSignal; });
    if (last == s.steps.rend()) {
      Signal(ticks, kOwnHost);
    } else {
      last->tick = ticks;
    }
    return std::move(s);
  }

  const int16_t me;
  const std::vector<int32_t>& near;  // members of the own host
  Schedule s;

 private:
  std::set<int32_t> reach_;
};

}  // namespace covey
#endif  // COVEY_OPS_ALGORITHMS_HOSTS_H_
