// Bytes live as long as any holder of them, and of no holder longer.
#include "core/base/counted_bytes.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

TEST(CountedBytesTest, TheLastHolderFreesThem) {
  Bytes bytes(100, std::byte{7});
  const std::byte* place = bytes.data();
  CountedBytes all(std::move(bytes));
  EXPECT_EQ(all.data(), place);  // taken over, not copied
  EXPECT_FALSE(all.IsShared());
  Slice part = Slice(all).Part(10, 20);
  EXPECT_TRUE(all.IsShared());
  all = {};
  EXPECT_FALSE(all);
  ASSERT_EQ(part.size(), 20u);
  EXPECT_EQ(part.data(), place + 10);
  for (const std::byte byte : part) EXPECT_EQ(byte, std::byte{7});
  const Slice same = part;
  part = {};
  EXPECT_TRUE(part.empty());
  EXPECT_EQ(same.data(), place + 10);
}

TEST(CountedBytesTest, NoneIsHeldByNone) {
  const CountedBytes none;
  EXPECT_FALSE(none || none.IsShared());
  EXPECT_EQ(Slice(none), Slice());
  EXPECT_EQ(Slice(Bytes()), Slice());
}

TEST(CountedBytesTest, NewOnesBeginOnACacheLine) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 20}) {
    const CountedBytes zeros = CountedBytes::Zeroed(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(zeros.data()) % 64, 0u);
    EXPECT_EQ(Slice(zeros), Slice(Bytes(size)));
  }
}

TEST(CountedBytesTest, APartLiesWithin) {
  const Slice all = Bytes(10);
  EXPECT_EQ(all.Part(10, 0).size(), 0u);
  EXPECT_EQ(all.From(4).size(), 6u);
  EXPECT_DEATH(static_cast<void>(all.Part(5, 6)), "lies within");
  EXPECT_DEATH(static_cast<void>(all.Part(11, 0)), "lies within");
}

}  // namespace
}  // namespace covey
