#include "core/plan/region.h"

#include <algorithm>
#include <iterator>

namespace covey {

Content Content::After(uint64_t distance) const {
  // Half an accumulator stands for nothing.
  if (symbol == kNothing || distance % widening != 0) return {};
  return {symbol, origin + distance / widening, widening};
}

Region::Region(uint64_t length_bytes, int32_t size, Content content, Access first)
    : length_bytes_(length_bytes), last_touch_(static_cast<size_t>(size)) {
  if (length_bytes > 0) pieces_[0] = {length_bytes, content, first, {}};
}

Region::Pieces::iterator Region::Cut(uint64_t at) {
  auto next = pieces_.lower_bound(at);
  if ((next != pieces_.end() && next->first == at) || at >= length_bytes_) return next;
  const auto piece = std::prev(next);
  const uint64_t head = at - piece->first;
  Piece tail = piece->second;
  tail.length -= head;
  tail.content = tail.content.After(head);
  piece->second.length = head;
  return pieces_.emplace_hint(next, at, std::move(tail));
}

// Makes neighbours one that differ in nothing, from the one before `begin` to the one at `end`.
void Region::Join(uint64_t begin, uint64_t end) {
  auto piece = pieces_.upper_bound(begin);
  if (piece != pieces_.begin()) --piece;
  if (piece != pieces_.begin()) --piece;
  while (piece != pieces_.end() && piece->first <= end) {
    const auto next = std::next(piece);
    if (next == pieces_.end()) return;
    Piece& a = piece->second;
    const Piece& b = next->second;
    if (a.content.After(a.length) == b.content && a.writer == b.writer && a.readers == b.readers) {
      a.length += b.length;
      pieces_.erase(next);
    } else {
      piece = next;
    }
  }
}

Access Region::Read(uint64_t begin, uint64_t length, int32_t me, const Epochs& epochs,
                    std::vector<Held>* held) {
  if (length == 0) return {};
  const Access now{me, epochs[static_cast<size_t>(me)]};
  last_touch_[static_cast<size_t>(me)] = now.epoch;
  Access conflict;
  Cut(begin + length);
  for (auto piece = Cut(begin); piece != pieces_.end() && piece->first < begin + length; ++piece) {
    Piece& p = piece->second;
    held->push_back({piece->first - begin, p.length, p.content});
    if (!p.writer.Before(me, epochs)) conflict = p.writer;
    const auto at =
        std::lower_bound(p.readers.begin(), p.readers.end(), now,
                         [](const Access& a, const Access& b) { return a.rank < b.rank; });
    if (at != p.readers.end() && at->rank == me) {
      *at = now;
    } else {
      p.readers.insert(at, now);
    }
  }
  Join(begin, begin + length);
  return conflict;
}

Access Region::Write(uint64_t begin, uint64_t length, int32_t me, const Epochs& epochs,
                     const std::vector<Held>& held) {
  if (length == 0) return {};
  const Access now{me, epochs[static_cast<size_t>(me)]};
  last_touch_[static_cast<size_t>(me)] = now.epoch;
  Access conflict;
  const auto last = Cut(begin + length);
  const auto first = Cut(begin);
  for (auto piece = first; piece != last; ++piece) {
    if (!piece->second.writer.Before(me, epochs)) conflict = piece->second.writer;
    for (const Access& reader : piece->second.readers)
      if (!reader.Before(me, epochs)) conflict = reader;
  }
  pieces_.erase(first, last);
  for (const Held& h : held)
    if (h.length > 0) pieces_[begin + h.at] = {h.length, h.content, now, {}};
  Join(begin, begin + length);
  return conflict;
}

std::vector<Held> Region::Contents() const {
  std::vector<Held> held;
  for (const auto& [begin, piece] : pieces_) held.push_back({begin, piece.length, piece.content});
  return held;
}

}  // namespace covey
