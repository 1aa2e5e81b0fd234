#include "core/partial/layout.h"

#include <algorithm>

#include "core/base/check.h"

namespace covey {

constexpr size_t kLine = 64;

RoundLayout::RoundLayout(std::span<const RoundSpan> spans, size_t shard_bytes)
    : shard_bytes_(shard_bytes) {
  CHECK(shard_bytes >= kLine && shard_bytes % kLine == 0, "shards begin on cache lines");
  for (size_t i = 0; i < spans.size(); ++i) {
    const RoundSpan& span = spans[i];
    CHECK(span.dtype != DType::kBool, "there is no sum of bools");
    const size_t item = SizeOf(span.dtype);
    const size_t most = shard_bytes / item;
    offsets_bytes_.push_back(length_bytes_);
    lengths_bytes_.push_back(span.count * item);
    for (size_t done = 0; done < span.count; done += most)
      shards_.push_back(
          {span.dtype, length_bytes_ + done * item, std::min(most, span.count - done), i});
    length_bytes_ += (span.count * item + kLine - 1) / kLine * kLine;
  }
}

}  // namespace covey
