#include "core/run/store_tuner.h"

#include <algorithm>
#include <bit>

namespace covey {

// The second best: what delays an exchange has nothing to do with how it stores, and a single one
// may have been lucky.
double StoreTuner::Way::Usual() const {
  std::array<double, kSamples> sorted = ns_per_kib;
  std::sort(sorted.begin(), sorted.end());
  return sorted[1];
}

Stores StoreTuner::Next(size_t length_bytes) {
  if (length_bytes < kLeastBytes) return Stores::kCached;
  Size& size = sizes_[static_cast<size_t>(std::bit_width(length_bytes)) - 1];
  if (size.left > 0) {
    --size.left;
    return size.preferred;
  }
  const Stores other = Other(size.preferred);
  return Of(size, other).count < Of(size, size.preferred).count ? other : size.preferred;
}

void StoreTuner::Learn(size_t length_bytes, Stores stores, Time took) {
  if (length_bytes < kLeastBytes) return;
  Size& size = sizes_[static_cast<size_t>(std::bit_width(length_bytes)) - 1];
  Way& way = Of(size, stores);
  if (size.left > 0 || way.count == kSamples) return;
  // Messages of one size may differ by a factor of nearly two.
  way.ns_per_kib[way.count++] =
      static_cast<double>(took) * 1024 / static_cast<double>(length_bytes);
  if (Of(size, Other(stores)).count == kSamples && way.count == kSamples) Decide(&size);
}

void StoreTuner::Decide(Size* size) {
  // A tenth better, or they would change places for ever.
  if (Of(*size, Other(size->preferred)).Usual() < Of(*size, size->preferred).Usual() * 0.9) {
    size->preferred = Other(size->preferred);
    size->run = kShortestRun;
  } else {
    size->run = std::min(2 * size->run, kLongestRun);
  }
  size->left = size->run;
  for (Way& way : size->ways) way.count = 0;
}

}  // namespace covey
