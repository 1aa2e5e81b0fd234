#include "core/base/keep_freed.h"

#include <malloc.h>

#include <algorithm>
#include <climits>

namespace covey {

void KeepFreedMemory(size_t most_bytes) {
  if (most_bytes == 0) return;
  // Some versions refuse more than this, the end of glibc's own adaptation.
  constexpr int kLeast = 32 << 20;
  const auto most = static_cast<int>(std::min<size_t>(most_bytes, INT_MAX));
  if (mallopt(M_MMAP_THRESHOLD, most) == 0) mallopt(M_MMAP_THRESHOLD, std::min(most, kLeast));
  mallopt(M_TRIM_THRESHOLD, most);
}

}  // namespace covey
