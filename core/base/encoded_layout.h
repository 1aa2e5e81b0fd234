// How a codec lays out what it makes of float32 elements: all a schedule has to know of it.
//
// Elements are coded in blocks, one after the other, each on its own: `header_bytes`, then
// `elem_bits` for each element, padded with zeros to 4 bytes. The last block of a message may be
// shorter. So sizes depend on nothing but counts and are equal on all ranks. Plain value, pure.
#ifndef COVEY_CORE_BASE_ENCODED_LAYOUT_H_
#define COVEY_CORE_BASE_ENCODED_LAYOUT_H_

#include <cstdint>

namespace covey {

struct EncodedLayout {
  uint32_t block_elems = 0;  // 0: no codec
  uint32_t header_bytes = 0;
  uint32_t elem_bits = 0;

  bool operator==(const EncodedLayout&) const = default;

  bool Codes() const { return block_elems > 0; }
  // Whether a part of a block fits the smallest landing slot, so that every message can travel.
  bool Possible() const {
    return block_elems > 0 && block_elems <= uint32_t{1} << 20 && header_bytes <= 32 &&
           elem_bits >= 1 && elem_bits <= 32;
  }

  // Bytes of one block of 1 to block_elems elements.
  uint64_t BlockBytes(uint64_t elems) const {
    return (header_bytes + (elems * elem_bits + 7) / 8 + 3) / 4 * 4;
  }
  // Bytes of `elems` elements from the beginning of a block on. REQUIRES: Codes().
  uint64_t EncodedBytes(uint64_t elems) const {
    const uint64_t last = elems % block_elems;
    return elems / block_elems * BlockBytes(block_elems) + (last > 0 ? BlockBytes(last) : 0);
  }
  // Elements of a segment, the most whose bytes fit: whole blocks, or a part of one where no whole
  // one fits. REQUIRES: Possible(), slot_bytes >= 64.
  uint64_t ElemsIn(uint64_t slot_bytes) const {
    const uint64_t blocks = slot_bytes / BlockBytes(block_elems);
    return blocks > 0 ? blocks * block_elems : (slot_bytes / 4 * 4 - header_bytes) * 8 / elem_bits;
  }
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_ENCODED_LAYOUT_H_
