// Messages of any length come whole, in order, in frames; one who takes none has few before it.
#include "core/replicated/fragmenter.h"

#include <gtest/gtest.h>

#include <deque>

#include "core/base/rng.h"
#include "core/replicated/replica_message.h"

namespace covey {
namespace {

constexpr size_t kFrameBytes = 64;

Bytes Joined(Parts parts) {
  Bytes joined;
  Append(&joined, parts);
  return joined;
}

Bytes MessageOf(size_t length, size_t number) {
  Bytes message(length);
  for (size_t i = 0; i < length; ++i) message[i] = static_cast<std::byte>(i * 7 + number);
  return message;
}

TEST(FragmenterTest, MessagesComeWholeAndInOrder) {
  Rng rng(20261122);
  Fragmenter one(9, 2, kFrameBytes), two(9, 2, kFrameBytes);
  std::deque<Bytes> under_way[2];  // to one, to two
  size_t queued[2] = {}, come[2] = {};
  std::vector<size_t> lengths;
  for (int i = 0; i < 200; ++i) lengths.push_back(rng.Below(rng.Percent(20) ? 2000 : 60));
  for (int turn = 0; turn < 200'000 && come[0] + come[1] < 2 * lengths.size(); ++turn) {
    const size_t self = rng.Below(2);
    Fragmenter* fragmenter = self == 0 ? &one : &two;
    const auto other = static_cast<int32_t>(1 - self);
    if (queued[self] < lengths.size() && rng.Percent(20)) {
      // Head and body of a message are cut anywhere.
      const Slice message = MessageOf(lengths[queued[self]], queued[self]);
      const size_t head = rng.Below(message.size() + 1);
      fragmenter->Enqueue(other, Bytes(message.begin(), message.begin() + head),
                          message.From(head));
      ++queued[self];
    }
    if (const Bytes frame = Joined(fragmenter->Next(other)); !frame.empty() && rng.Percent(70)) {
      ASSERT_LE(frame.size(), kFrameBytes);
      ASSERT_TRUE(Fragmenter::IsFrame(frame));
      ASSERT_EQ(Fragmenter::ChannelOf(frame), 9u);
      under_way[other].push_back(frame);
      fragmenter->OnSent(other);
    }
    if (under_way[self].empty() || rng.Percent(50)) continue;
    Slice message;
    const Fragmenter::Received came =
        fragmenter->OnFrame(other, under_way[self].front(), 2000, &message);
    under_way[self].pop_front();
    ASSERT_NE(came, Fragmenter::Received::kMalformed);
    if (came != Fragmenter::Received::kMessage) continue;
    ASSERT_EQ(message, Slice(MessageOf(lengths[come[self]], come[self]))) << come[self];
    ++come[self];
  }
  EXPECT_EQ(come[0], lengths.size());
  EXPECT_EQ(come[1], lengths.size());
  EXPECT_TRUE(one.IsEmpty() && two.IsEmpty() && !one.IsInMessage() && !two.IsInMessage());
}

// Neither its writer nor its reader copies it, and it begins where elements of any type may.
TEST(FragmenterTest, AShardGoesInOneFrameAndStaysThere) {
  constexpr size_t kLine = 64, kMailbox = size_t{256} << 10;
  Fragmenter one(1, 2, kMailbox), two(1, 2, kMailbox);
  const Bytes head = ReplicaMessage{.kind = ReplicaMessage::Kind::kPiece}.EncodeHead();
  const Slice body = MessageOf(ShardLimits().most_bytes + kLine, 3);
  one.Enqueue(1, head, body);
  const Parts parts = one.Next(1);
  EXPECT_EQ(parts.back().data(), body.data());
  EXPECT_LE(2 * (LengthOf(parts) + kLine), kMailbox);
  Bytes frame = Joined(parts);
  const std::byte* begin = frame.data();
  Slice message;
  const size_t longest = head.size() + body.size();
  ASSERT_EQ(two.OnFrame(0, std::move(frame), longest, &message), Fragmenter::Received::kMessage);
  EXPECT_EQ(message.end(), begin + LengthOf(parts));
  EXPECT_EQ((message.data() - begin) % static_cast<std::ptrdiff_t>(sizeof(double)), 0);
  EXPECT_EQ(message.From(head.size()), body);
}

// What is meant for others passes it by.
TEST(FragmenterTest, ToOneWhoTakesNoneFewAreUnderWay) {
  Fragmenter fragmenter(1, 3, kFrameBytes);
  fragmenter.Enqueue(1, MessageOf(5000, 1));
  fragmenter.Enqueue(2, MessageOf(10, 2));
  uint64_t sent = 0;
  while (!fragmenter.Next(1).empty() && sent < 100) {
    fragmenter.OnSent(1);
    ++sent;
  }
  EXPECT_EQ(sent, Fragmenter::kWindow);
  EXPECT_FALSE(fragmenter.Next(2).empty());
  fragmenter.OnSent(2);
  EXPECT_FALSE(fragmenter.IsEmpty());
  fragmenter.OnLoss(1);
  EXPECT_TRUE(fragmenter.IsEmpty());
}

TEST(FragmenterTest, ClosingComesAfterTheLastMessage) {
  Fragmenter one(5, 2, kFrameBytes), two(5, 2, kFrameBytes);
  one.Enqueue(1, MessageOf(90, 1));
  one.EnqueueClosing();
  one.OnLoss(0);  // itself
  std::vector<Fragmenter::Received> all;
  while (!one.Next(1).empty()) {
    const Bytes frame = Joined(one.Next(1));
    one.OnSent(1);
    Slice message;
    all.push_back(two.OnFrame(0, frame, 100, &message));
  }
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2], Fragmenter::Received::kMessage);
  EXPECT_EQ(all[3], Fragmenter::Received::kClosing);
  EXPECT_TRUE(one.IsEmpty());
}

TEST(FragmenterTest, OneThatHasLeftIsSentNothing) {
  Fragmenter one(5, 2, kFrameBytes), two(5, 2, kFrameBytes);
  one.OnLoss(0);  // itself
  two.EnqueueLeave(0, MessageOf(7, 2));
  const Bytes leave = Joined(two.Next(0));
  one.Enqueue(1, MessageOf(500, 1));
  ASSERT_FALSE(one.Next(1).empty());
  Slice message;
  EXPECT_EQ(one.OnFrame(1, leave, 100, &message), Fragmenter::Received::kMessage);
  EXPECT_EQ(message, Slice(MessageOf(7, 2)));
  EXPECT_TRUE(one.IsEmpty());
  one.EnqueueLeave(1, MessageOf(7, 1));
  EXPECT_TRUE(one.IsEmpty());
}

// What a writer of messages never says. Kinds as in fragmenter.h: 1 taken, 2 part, 3 last.
Bytes FrameOf(uint8_t kind, uint64_t taken, uint64_t length, size_t data_bytes) {
  Writer writer;
  writer.Put(uint8_t{0xc7});
  writer.Put(kind);
  writer.Pad(sizeof(uint64_t));
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
  Fragmenter::Received Take(uint8_t kind, uint64_t length, size_t data_bytes,
                            size_t longest = kLongest) {
    message_ = {};
    return fragmenter_.OnFrame(0, FrameOf(kind, 0, length, data_bytes), longest, &message_);
  }
  // After a message that was dropped the next one comes.
  void ExpectNextComes() {
    EXPECT_FALSE(fragmenter_.IsInMessage());
    EXPECT_EQ(Take(2, 50, 30), Fragmenter::Received::kNothing);
    EXPECT_EQ(Take(3, 50, 20), Fragmenter::Received::kMessage);
    EXPECT_EQ(message_.size(), 50u);
  }
  Fragmenter fragmenter_{1, 2, kFrameBytes};
  Slice message_;
};

TEST_F(ForgedTest, MemoryIsTakenForWhatHasCome) {
  constexpr size_t kAny = ~size_t{0};
  EXPECT_EQ(Take(2, uint64_t{1} << 62, 30, kAny), Fragmenter::Received::kNothing);
  EXPECT_EQ(Take(2, uint64_t{1} << 62, 30, kAny), Fragmenter::Received::kNothing);
  EXPECT_EQ(Take(3, uint64_t{1} << 62, 30, kAny), Fragmenter::Received::kMalformed);  // not as long
  ExpectNextComes();
}

TEST_F(ForgedTest, AMessageBeyondTheLimitIsDroppedWhole) {
  EXPECT_EQ(Take(2, kLongest + 1, 30), Fragmenter::Received::kMalformed);
  EXPECT_FALSE(fragmenter_.IsInMessage());
  EXPECT_EQ(Take(2, 40, 30), Fragmenter::Received::kMalformed);  // of the same message
  EXPECT_EQ(Take(3, 30, 30), Fragmenter::Received::kMalformed);
  ExpectNextComes();
  EXPECT_EQ(Take(3, kLongest + 1, 101), Fragmenter::Received::kMalformed);
  ExpectNextComes();
}

TEST_F(ForgedTest, AMessageThatIsNotAsLongAsItSaysIsDropped) {
  EXPECT_EQ(Take(2, 40, 30), Fragmenter::Received::kNothing);
  EXPECT_EQ(Take(2, 40, 30), Fragmenter::Received::kMalformed);
  EXPECT_EQ(Take(3, 40, 10), Fragmenter::Received::kMalformed);
  ExpectNextComes();
  EXPECT_EQ(Take(2, 40, 0), Fragmenter::Received::kMalformed);  // a part brings something
  EXPECT_EQ(Take(3, 40, 40), Fragmenter::Received::kMalformed);
  ExpectNextComes();
  EXPECT_EQ(Take(9, 40, 40), Fragmenter::Received::kMalformed);  // of no kind
  ExpectNextComes();
}

TEST_F(ForgedTest, NobodyTakesMoreThanWasSent) {
  Slice message;
  fragmenter_.Enqueue(1, MessageOf(5000, 1));
  EXPECT_EQ(fragmenter_.OnFrame(1, FrameOf(1, ~uint64_t{0}, 0, 0), kLongest, &message),
            Fragmenter::Received::kNothing);
  uint64_t sent = 0;
  for (; !fragmenter_.Next(1).empty() && sent < 100; ++sent) fragmenter_.OnSent(1);
  EXPECT_EQ(sent, Fragmenter::kWindow);
}

}  // namespace
}  // namespace covey
