// A message that lies in several pieces of memory: the tensors of one request, end to end.
//
// Offsets are in bytes of the whole message. Borrowed memory; rebuilt for every exchange, keeps its
// capacity.
#ifndef COVEY_CORE_BASE_SPANS_H_
#define COVEY_CORE_BASE_SPANS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace covey {

class Spans {
 public:
  void Clear() {
    pieces_.clear();
    length_bytes_ = 0;
  }
  void Add(std::byte* data, size_t length_bytes) {
    if (length_bytes == 0) return;
    pieces_.push_back({length_bytes_, data, length_bytes});
    length_bytes_ += length_bytes;
  }
  // The first piece lies here. REQUIRES: there is one.
  void Move(std::byte* data) { pieces_[0].data = data; }
  size_t length_bytes() const { return length_bytes_; }
  // Where the message begins; null when it is empty.
  std::byte* First() const { return pieces_.empty() ? nullptr : pieces_[0].data; }
  // How the pieces lie relative to the first. Messages of equal length and layout can be addressed
  // alike: a piece at First() + d here is at First() + d there. Equal for all that are one piece.
  uint64_t Layout() const {
    uint64_t hash = 1;
    for (size_t i = 1; i < pieces_.size(); ++i) {
      const auto distance = static_cast<uint64_t>(pieces_[i].data - pieces_[0].data);
      for (uint64_t v : {distance, uint64_t{pieces_[i].begin}}) hash = (hash ^ v) * 1099511628211u;
    }
    return hash;
  }
  // The memory of the whole message if it is one piece, else null.
  std::byte* Contiguous() const { return pieces_.size() == 1 ? pieces_[0].data : nullptr; }

  // Calls fn(std::byte* data, size_t length) for each piece.
  template <typename Fn>
  void ForEachPiece(Fn fn) const {
    for (const Piece& piece : pieces_) fn(piece.data, piece.length);
  }
  // Calls fn(std::byte* piece, size_t delta, size_t length) for each piece of [offset, offset +
  // length), delta counting from `offset`. REQUIRES: the range lies inside the message.
  template <typename Fn>
  void ForEach(size_t offset, size_t length_bytes, Fn fn) const {
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                  [](size_t at, const Piece& p) { return at < p.begin; });
    size_t done = 0;
    for (--piece; done < length_bytes; ++piece) {
      const size_t skip = offset + done - piece->begin;
      const size_t part = std::min(piece->length - skip, length_bytes - done);
      fn(piece->data + skip, done, part);
      done += part;
    }
  }

 private:
  struct Piece {
    size_t begin;
    std::byte* data;
    size_t length;
  };
  std::vector<Piece> pieces_;
  size_t length_bytes_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_SPANS_H_
