// Random bits for codecs that round at random: a function of seed and place, so that loops over
// places can be vectorised and are repeated exactly.
#ifndef COVEY_OPS_CODECS_DRAW_H_
#define COVEY_OPS_CODECS_DRAW_H_

#include <cstdint>

namespace covey {

// The upper bits are the better ones.
[[gnu::always_inline]] inline uint32_t Drawn(uint32_t seed, uint32_t place) {
  uint32_t z = seed + place * 0x9e3779b1u;
  z = (z ^ (z >> 16)) * 0x85ebca6bu;
  return (z ^ (z >> 13)) * 0xc2b2ae35u;
}

}  // namespace covey
#endif  // COVEY_OPS_CODECS_DRAW_H_
