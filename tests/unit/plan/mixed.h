// One round of a topology, applied to a number of each rank.
#ifndef COVEY_TESTS_UNIT_PLAN_MIXED_H_
#define COVEY_TESTS_UNIT_PLAN_MIXED_H_

#include <cstdint>
#include <vector>

#include "core/plan/topology.h"

namespace covey {

// W x, by rank.
inline std::vector<double> Mixed(const Topology& topology, uint64_t round,
                                 const std::vector<double>& x) {
  std::vector<double> y;
  for (int32_t rank = 0; rank < topology.size; ++rank) {
    const MixingRow row = RowOf(topology, round, rank);
    y.push_back(row.own * x[static_cast<size_t>(rank)]);
    for (const Neighbor& one : row.from) y.back() += one.weight * x[static_cast<size_t>(one.rank)];
  }
  return y;
}

}  // namespace covey
#endif  // COVEY_TESTS_UNIT_PLAN_MIXED_H_
