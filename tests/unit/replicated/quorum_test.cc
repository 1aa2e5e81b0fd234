// Two sets of replicas that do not know of each other are never both a quorum, and of any two
// halves one is.
//
// Method: every set of up to 12 replicas beside the replicas that are not in it; sizes up to 64 by
// count.
#include "core/replicated/quorum.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace covey {
namespace {

std::vector<bool> SetOf(size_t size, uint64_t bits) {
  std::vector<bool> set;
  for (size_t i = 0; i < size; ++i) set.push_back((bits >> i & 1) != 0);
  return set;
}

TEST(QuorumTest, OfASetAndAllOthersExactlyOneDecides) {
  for (size_t size = 1; size <= 12; ++size) {
    const std::vector<bool> nobody(size);
    for (uint64_t bits = 0; bits < uint64_t{1} << size; ++bits)
      EXPECT_NE(IsQuorum(SetOf(size, bits), nobody), IsQuorum(SetOf(size, ~bits), nobody))
          << size << " replicas, set " << bits;
  }
}

TEST(QuorumTest, MoreThanHalfDecideAndOfAHalfTheOneWithTheFirst) {
  for (size_t size = 1; size <= 64; ++size) {
    const std::vector<bool> nobody(size);
    std::vector<bool> last(size);
    for (size_t i = 0; i < size / 2 + 1; ++i) last[size - 1 - i] = true;
    EXPECT_TRUE(IsQuorum(last, nobody)) << size;
    last[size - 1 - size / 2] = false;
    EXPECT_FALSE(IsQuorum(last, nobody)) << size;
    std::vector<bool> first(size);
    for (size_t i = 0; i < (size + 1) / 2; ++i) first[i] = true;
    EXPECT_TRUE(IsQuorum(first, nobody)) << size;
  }
}

// The witness is on one side at most.
TEST(QuorumTest, WithAWitnessOneHalfDecidesAndNeverBoth) {
  for (size_t size = 1; size <= 12; ++size) {
    const std::vector<bool> nobody(size);
    for (uint64_t bits = 0; bits < uint64_t{1} << size; ++bits) {
      const std::vector<bool> these = SetOf(size, bits), others = SetOf(size, ~bits);
      const bool decide = IsQuorum(these, nobody, Half::kWithThem);
      EXPECT_NE(decide, IsQuorum(others, nobody, Half::kMissing)) << size << ", set " << bits;
      const bool is_more =
          2 * std::count(these.begin(), these.end(), true) > static_cast<std::ptrdiff_t>(size);
      EXPECT_EQ(IsQuorum(these, nobody, Half::kMissing), is_more) << size << ", set " << bits;
    }
  }
}

TEST(QuorumTest, AllThatLiveDecide) {
  EXPECT_TRUE(IsQuorum({false, true, false}, {true, false, true}));
  EXPECT_FALSE(IsQuorum({false, true, false}, {true, false, false}));
}

}  // namespace
}  // namespace covey
