#include "core/partial/layout.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {

constexpr size_t kLine = 64;

RoundLayout::RoundLayout(std::span<const RoundSpan> spans, size_t tile_bytes)
    : tile_bytes_(tile_bytes) {
  CHECK(tile_bytes >= kLine && tile_bytes % kLine == 0, "tiles begin on cache lines");
  for (size_t i = 0; i < spans.size(); ++i) {
    const RoundSpan& span = spans[i];
    CHECK(span.dtype != DType::kBool, "there is no sum of bools");
    const size_t item = SizeOf(span.dtype);
    const size_t most = tile_bytes / item;
    offsets_bytes_.push_back(length_bytes_);
    lengths_bytes_.push_back(span.count * item);
    for (size_t done = 0; done < span.count; done += most)
      tiles_.push_back(
          {span.dtype, length_bytes_ + done * item, std::min(most, span.count - done), i});
    length_bytes_ += (span.count * item + kLine - 1) / kLine * kLine;
  }
}

}  // namespace covey
