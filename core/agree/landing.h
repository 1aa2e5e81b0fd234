// How much landing space a stream needs (agree-N9), and where it comes from.
#ifndef COVEY_CORE_AGREE_LANDING_H_
#define COVEY_CORE_AGREE_LANDING_H_

#include <algorithm>
#include <cstddef>

#include "core/agree/signature.h"
#include "core/base/channel.h"

namespace covey {

// Bytes of one landing slot: the whole message, or one segment of it; equal on every rank for an
// equal signature. The input of a gather is not in the signature, so that gets a full segment.
inline size_t LandingSlotBytes(const Signature& signature, size_t segment_bytes) {
  if (!HasTensors(signature.kind)) return kLandingAlign;
  const size_t wanted = Gathers(signature.kind)
                            ? segment_bytes
                            : std::min(signature.TravellingBytes(), segment_bytes);
  return std::max(kLandingAlign, (wanted + kLandingAlign - 1) / kLandingAlign * kLandingAlign);
}

inline constexpr uint64_t kNoBlock = ~uint64_t{0};

// Where landing blocks come from. Alloc chooses how many slots a block gets and returns where it
// lies, or kNoBlock when there is no room; it holds LandingBlockBytes(slot_bytes, depth, members),
// zero-filled.
class LandingBlocks {
 public:
  virtual ~LandingBlocks() = default;
  virtual uint64_t Alloc(size_t slot_bytes, size_t members, uint32_t* depth) = 0;
  virtual void Free(uint64_t block) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_LANDING_H_
