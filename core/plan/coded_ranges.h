// The ranges of the message that ranks have encoded at once, and the sums that they have encoded.
// Pure.
#ifndef COVEY_CORE_PLAN_CODED_RANGES_H_
#define COVEY_CORE_PLAN_CODED_RANGES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/plan/symbols.h"

namespace covey {

class CodedRanges {
 public:
  struct Range {
    uint64_t begin, length;
    bool operator==(const Range&) const = default;
  };

  // The number of a range: equal ranges have equal numbers.
  int32_t NumberOf(const Range& range) {
    const auto found = std::find(ranges_.begin(), ranges_.end(), range);
    const auto number = static_cast<int32_t>(found - ranges_.begin());
    if (found == ranges_.end()) ranges_.push_back(range);
    return number;
  }
  const Range& At(int32_t number) const { return ranges_[static_cast<size_t>(number)]; }

  // The rank that has encoded some of these bytes of `sum`; -1: none, and now `rank` has.
  int32_t AddSum(Symbol sum, const Range& range, int32_t rank) {
    for (const CodedSum& other : sums_)
      if (other.sum == sum && other.range.begin < range.begin + range.length &&
          range.begin < other.range.begin + other.range.length)
        return other.rank;
    sums_.push_back({sum, range, rank});
    return -1;
  }

 private:
  struct CodedSum {
    Symbol sum;
    Range range;
    int32_t rank;
  };
  std::vector<Range> ranges_;
  std::vector<CodedSum> sums_;
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_CODED_RANGES_H_
