// Random numbers from a seed, the same on every machine. The seed stands in the configuration or
// the test.
//
// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014,
// DOI 10.1145/2660193.2660195). Not for secrets. One per owner; not thread-safe.
#ifndef COVEY_CORE_BASE_RNG_H_
#define COVEY_CORE_BASE_RNG_H_

#include <cstdint>

namespace covey {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0..bound-1. REQUIRES: bound >= 1. The bias of the remainder is below bound / 2^64.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // True with probability percent / 100.
  bool Percent(uint64_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace covey
#endif  // COVEY_CORE_BASE_RNG_H_
