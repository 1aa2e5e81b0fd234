#include "core/run/store_tuner.h"

#include <algorithm>
#include <bit>

namespace covey {

Time StoreTuner::Way::Best() const {
  return *std::min_element(latest.begin(), latest.begin() + std::min(count, kSamples));
}

Stores StoreTuner::Next(size_t length_bytes) {
  if (length_bytes < kLeastBytes) return Stores::kCached;
  Size& size = sizes_[static_cast<size_t>(std::bit_width(length_bytes)) - 1];
  const Stores other = Other(size.preferred);
  if (Of(size, size.preferred).count < kSamples) return size.preferred;
  if (Of(size, other).count < kSamples) return other;
  // Of the way not used only two samples are renewed: as many as the first one may mislead.
  if (++size.since_trial <= kTrialEvery) return size.preferred;
  if (size.since_trial >= kTrialEvery + 2) size.since_trial = 0;
  return other;
}

void StoreTuner::Learn(size_t length_bytes, Stores stores, Time took) {
  if (length_bytes < kLeastBytes) return;
  Size& size = sizes_[static_cast<size_t>(std::bit_width(length_bytes)) - 1];
  Way& way = Of(size, stores);
  way.latest[way.count++ % kSamples] = took;
  const Way& used = Of(size, size.preferred);
  const Way& other = Of(size, Other(size.preferred));
  if (used.count < kSamples || other.count < kSamples) return;
  // A tenth better, or they would change places for ever.
  if (other.Best() < used.Best() - used.Best() / 10) size.preferred = Other(size.preferred);
}

}  // namespace covey
