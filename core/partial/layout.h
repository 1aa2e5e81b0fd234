// The layout of a contribution to a version: spans of elements side by side, and the tiles they are
// reduced in.
//
// A value, equal on all ranks of a bundle. Spans begin on cache lines. A tile is a piece of one
// span, small enough for a core's own cache; the member that claims it does it alone.
#ifndef COVEY_CORE_PARTIAL_LAYOUT_H_
#define COVEY_CORE_PARTIAL_LAYOUT_H_

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace covey {

// `count` elements that are reduced alike.
struct RoundSpan {
  DType dtype = DType::kF32;
  size_t count = 0;
};

class RoundLayout {
 public:
  struct Tile {
    DType dtype = DType::kF32;
    size_t offset_bytes = 0;  // in a contribution
    size_t count = 0;         // elements
    size_t span = 0;          // of which it is a piece
  };

  // REQUIRES: no span is of kBool; tile_bytes is a multiple of 64, at least 64.
  RoundLayout(std::span<const RoundSpan> spans, size_t tile_bytes);

  // Where each span begins in a contribution, and how long it is.
  const std::vector<size_t>& offsets_bytes() const { return offsets_bytes_; }
  const std::vector<size_t>& lengths_bytes() const { return lengths_bytes_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  size_t length_bytes() const { return length_bytes_; }
  size_t tile_bytes() const { return tile_bytes_; }

 private:
  size_t tile_bytes_;
  size_t length_bytes_ = 0;
  std::vector<size_t> offsets_bytes_, lengths_bytes_;
  std::vector<Tile> tiles_;
};

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_LAYOUT_H_
