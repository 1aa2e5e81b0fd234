// The binomial tree over 0..n-1 with root 0, for algorithms. Any n.
//
// The parent of v is v without its lowest set bit; below v lie v..v+2^b-1 (as far as they exist)
// when bit b is that bit. So what v and its first children have, put together in order, is always a
// run of neighbours. Pure.
#ifndef COVEY_OPS_ALGORITHMS_BINOMIAL_H_
#define COVEY_OPS_ALGORITHMS_BINOMIAL_H_

#include <cstdint>
#include <vector>

namespace covey {

constexpr int32_t ParentOf(int32_t v) { return v & (v - 1); }  // REQUIRES: v > 0

// Ascending.
inline std::vector<int32_t> ChildrenOf(int32_t v, int32_t n) {
  std::vector<int32_t> children;
  for (int32_t bit = 1; (v & bit) == 0 && v + bit < n; bit *= 2) children.push_back(v + bit);
  return children;
}

}  // namespace covey
#endif  // COVEY_OPS_ALGORITHMS_BINOMIAL_H_
