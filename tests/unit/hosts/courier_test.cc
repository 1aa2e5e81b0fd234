// Letters of any length come whole, in order, in frames; one who takes none has few before it.
#include "core/hosts/courier.h"

#include <gtest/gtest.h>

#include <deque>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr size_t kFrameBytes = 64;

Bytes LetterOf(size_t length, size_t number) {
  Bytes letter(length);
  for (size_t i = 0; i < length; ++i) letter[i] = static_cast<std::byte>(i * 7 + number);
  return letter;
}

TEST(CourierTest, LettersComeWholeAndInOrder) {
  Rng rng(20261122);
  Courier one(9, 2, kFrameBytes), two(9, 2, kFrameBytes);
  std::deque<Bytes> under_way[2];  // to one, to two
  size_t posted[2] = {}, come[2] = {};
  std::vector<size_t> lengths;
  for (int i = 0; i < 200; ++i) lengths.push_back(rng.Below(rng.Percent(20) ? 2000 : 60));
  for (int turn = 0; turn < 200'000 && come[0] + come[1] < 2 * lengths.size(); ++turn) {
    const size_t self = rng.Below(2);
    Courier* courier = self == 0 ? &one : &two;
    const auto other = static_cast<int32_t>(1 - self);
    if (posted[self] < lengths.size() && rng.Percent(20)) {
      courier->Post(other, LetterOf(lengths[posted[self]], posted[self]));
      ++posted[self];
    }
    if (const auto frame = courier->Next(other); !frame.empty() && rng.Percent(70)) {
      ASSERT_LE(frame.size(), kFrameBytes);
      ASSERT_TRUE(Courier::IsFrame(frame));
      ASSERT_EQ(Courier::ChannelOf(frame), 9u);
      under_way[other].emplace_back(frame.begin(), frame.end());
      courier->OnSent(other);
    }
    if (under_way[self].empty() || rng.Percent(50)) continue;
    Bytes letter;
    const Courier::Came came = courier->OnFrame(other, under_way[self].front(), &letter);
    under_way[self].pop_front();
    ASSERT_NE(came, Courier::Came::kMalformed);
    if (came != Courier::Came::kLetter) continue;
    ASSERT_EQ(letter, LetterOf(lengths[come[self]], come[self])) << come[self];
    ++come[self];
  }
  EXPECT_EQ(come[0], lengths.size());
  EXPECT_EQ(come[1], lengths.size());
  EXPECT_TRUE(one.IsEmpty() && two.IsEmpty() && !one.IsInLetter() && !two.IsInLetter());
}

// What is meant for others passes it by.
TEST(CourierTest, ToOneWhoTakesNoneFewAreUnderWay) {
  Courier courier(1, 3, kFrameBytes);
  courier.Post(1, LetterOf(5000, 1));
  courier.Post(2, LetterOf(10, 2));
  uint64_t sent = 0;
  while (!courier.Next(1).empty() && sent < 100) {
    courier.OnSent(1);
    ++sent;
  }
  EXPECT_EQ(sent, Courier::kWindow);
  EXPECT_FALSE(courier.Next(2).empty());
  courier.OnSent(2);
  EXPECT_FALSE(courier.IsEmpty());
  courier.OnLoss(1);
  EXPECT_TRUE(courier.IsEmpty());
}

TEST(CourierTest, ClosingComesAfterTheLastLetter) {
  Courier one(5, 2, kFrameBytes), two(5, 2, kFrameBytes);
  one.Post(1, LetterOf(100, 1));
  one.PostClosing();
  one.OnLoss(0);  // itself
  std::vector<Courier::Came> all;
  while (!one.Next(1).empty()) {
    const Bytes frame(one.Next(1).begin(), one.Next(1).end());
    one.OnSent(1);
    Bytes letter;
    all.push_back(two.OnFrame(0, frame, &letter));
  }
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2], Courier::Came::kLetter);
  EXPECT_EQ(all[3], Courier::Came::kClosing);
  EXPECT_TRUE(one.IsEmpty());
}

}  // namespace
}  // namespace covey
