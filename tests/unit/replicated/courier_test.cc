// Letters of any length come whole, in order, in frames; one who takes none has few before it.
#include "core/replicated/courier.h"

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
    const Courier::Came came = courier->OnFrame(other, under_way[self].front(), 2000, &letter);
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
    all.push_back(two.OnFrame(0, frame, 100, &letter));
  }
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2], Courier::Came::kLetter);
  EXPECT_EQ(all[3], Courier::Came::kClosing);
  EXPECT_TRUE(one.IsEmpty());
}

// What a writer of letters never says. Kinds as in courier.h: 1 taken, 2 part, 3 last.
Bytes FrameOf(uint8_t kind, uint64_t taken, uint64_t length, size_t data_bytes) {
  Writer writer;
  writer.Put(uint8_t{0xc7});
  writer.Put(kind);
  writer.Put(uint64_t{1});
  writer.Put(taken);
  writer.Put(length);
  Bytes frame = writer.Take();
  frame.resize(frame.size() + data_bytes, std::byte{1});
  return frame;
}

class ForgedTest : public testing::Test {
 protected:
  static constexpr size_t kLongest = 100;
  Courier::Came Take(uint8_t kind, uint64_t length, size_t data_bytes, size_t longest = kLongest) {
    letter_.clear();
    return courier_.OnFrame(0, FrameOf(kind, 0, length, data_bytes), longest, &letter_);
  }
  // After a letter that was dropped the next one comes.
  void ExpectNextComes() {
    EXPECT_FALSE(courier_.IsInLetter());
    EXPECT_EQ(Take(2, 50, 30), Courier::Came::kNothing);
    EXPECT_EQ(Take(3, 50, 20), Courier::Came::kLetter);
    EXPECT_EQ(letter_.size(), 50u);
  }
  Courier courier_{1, 2, kFrameBytes};
  Bytes letter_;
};

TEST_F(ForgedTest, MemoryIsTakenForWhatHasCome) {
  constexpr size_t kAny = ~size_t{0};
  EXPECT_EQ(Take(2, uint64_t{1} << 62, 30, kAny), Courier::Came::kNothing);
  EXPECT_EQ(Take(2, uint64_t{1} << 62, 30, kAny), Courier::Came::kNothing);
  EXPECT_EQ(Take(3, uint64_t{1} << 62, 30, kAny), Courier::Came::kMalformed);  // not as long
  ExpectNextComes();
}

TEST_F(ForgedTest, ALetterBeyondTheLimitIsDroppedWhole) {
  EXPECT_EQ(Take(2, kLongest + 1, 30), Courier::Came::kMalformed);
  EXPECT_FALSE(courier_.IsInLetter());
  EXPECT_EQ(Take(2, 40, 30), Courier::Came::kMalformed);  // of the same letter
  EXPECT_EQ(Take(3, 30, 30), Courier::Came::kMalformed);
  ExpectNextComes();
  EXPECT_EQ(Take(3, kLongest + 1, 101), Courier::Came::kMalformed);
  ExpectNextComes();
}

TEST_F(ForgedTest, ALetterThatIsNotAsLongAsItSaysIsDropped) {
  EXPECT_EQ(Take(2, 40, 30), Courier::Came::kNothing);
  EXPECT_EQ(Take(2, 40, 30), Courier::Came::kMalformed);
  EXPECT_EQ(Take(3, 40, 10), Courier::Came::kMalformed);
  ExpectNextComes();
  EXPECT_EQ(Take(2, 40, 0), Courier::Came::kMalformed);  // a part brings something
  EXPECT_EQ(Take(3, 40, 40), Courier::Came::kMalformed);
  ExpectNextComes();
  EXPECT_EQ(Take(9, 40, 40), Courier::Came::kMalformed);  // of no kind
  ExpectNextComes();
}

TEST_F(ForgedTest, NobodyTakesMoreThanWasSent) {
  Bytes letter;
  courier_.Post(1, LetterOf(5000, 1));
  EXPECT_EQ(courier_.OnFrame(1, FrameOf(1, ~uint64_t{0}, 0, 0), kLongest, &letter),
            Courier::Came::kNothing);
  uint64_t sent = 0;
  for (; !courier_.Next(1).empty() && sent < 100; ++sent) courier_.OnSent(1);
  EXPECT_EQ(sent, Courier::kWindow);
}

}  // namespace
}  // namespace covey
