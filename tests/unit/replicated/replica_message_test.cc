// A message that is written and read is the same, and bytes that are none are refused.
#include "core/replicated/replica_message.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

using Kind = ReplicaMessage::Kind;

constexpr int32_t kSize = 3;

const RoundMemory& Geometry() {
  static const RoundMemory geometry({.size = kSize, .hypers = 2}, RoundLayout({}, 64));
  return geometry;
}

ReplicaMessage Full() {
  ReplicaMessage message{.kind = Kind::kAppendResponse,
                         .term = 7,
                         .executed = 8,
                         .version = 9,
                         .accepted_term = 10,
                         .number = 11,
                         .member_status = 12,
                         .applied = 13,
                         .tries = 14,
                         .max_wait = 15,
                         .left = true};
  message.need = 16;
  message.quiet = true;
  message.over = 17;
  message.snapshot_to = 18;
  message.snapshot_version = 19;
  message.content = {.first = 20, .last = 21, .count = ~uint64_t{0}};
  message.consumed = 23;
  message.holders = {true, false, true};
  message.relay = 24;
  message.hypers = {0.5, -1};
  message.body = Bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  return message;
}

TEST(ReplicaMessageTest, IsReadAsItWasWritten) {
  const Bytes bytes = Full().Encode();
  ReplicaMessage message;
  ASSERT_TRUE(ReplicaMessage::Decode(bytes, &message));
  EXPECT_EQ(message.Encode(), bytes);
  EXPECT_EQ(message.kind, Kind::kAppendResponse);
  EXPECT_EQ(message.max_wait, 15);
  EXPECT_TRUE(message.left && message.quiet && !message.is_no_op);
  EXPECT_EQ(message.content.count, ~uint64_t{0});
  EXPECT_EQ(message.consumed, 23u);
  EXPECT_EQ(message.relay, 24u);
  EXPECT_EQ(message.snapshot_version, 19u);
  EXPECT_EQ(message.holders, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(message.hypers, (std::vector<double>{0.5, -1}));
  EXPECT_EQ(message.body, Full().body);
}

// The body begins aligned after a head of any length, and is not copied.
TEST(ReplicaMessageTest, ABodyIsAPartOfTheBytesWhereElementsMayBegin) {
  for (size_t numbers = 0; numbers < 100; numbers += 7) {
    ReplicaMessage written = Full();
    written.holders.resize(numbers);
    const Slice bytes = written.Encode();
    ReplicaMessage read;
    ASSERT_TRUE(ReplicaMessage::Decode(bytes, &read));
    EXPECT_EQ(read.body, Full().body);
    EXPECT_EQ(read.body.end(), bytes.end());
    EXPECT_EQ((read.body.data() - bytes.data()) % static_cast<std::ptrdiff_t>(sizeof(double)), 0);
  }
}

TEST(ReplicaMessageTest, WhatIsNoneIsRefused) {
  Bytes bytes = Full().Encode();
  ReplicaMessage message;
  // The body may have any length; all before it is needed.
  for (size_t length = 0; length + 3 < bytes.size(); ++length)
    EXPECT_FALSE(ReplicaMessage::Decode(Slice(bytes).Part(0, length), &message)) << length;
  bytes[0] = std::byte{0};
  EXPECT_FALSE(ReplicaMessage::Decode(bytes, &message));
  bytes[0] = std::byte{200};
  EXPECT_FALSE(ReplicaMessage::Decode(bytes, &message));
}

ReplicatedEntry Entry() {
  ReplicatedEntry entry{.version = 5, .made = {2, 3}, .roles = {1, 0, 2}, .hub = 2};
  entry.consumed = {5, 3, 5};
  entry.missing = {0, 2, 0};
  Bytes body(Geometry().record_bytes() + 100, std::byte{7});
  std::fill_n(body.begin(), Geometry().record_bytes(), std::byte{0});
  const std::vector<uint64_t> words{5, uint64_t{3} << 32 | 2, 1, 5, 5, 1, 5};
  std::copy_n(reinterpret_cast<const std::byte*>(words.data()), words.size() * sizeof(uint64_t),
              body.begin());
  entry.body = std::move(body);
  return entry;
}

ReplicaMessage Sent(const ReplicaMessage& message) {
  ReplicaMessage read;
  EXPECT_TRUE(ReplicaMessage::Decode(message.Encode(), &read));
  return read;
}

TEST(ReplicaMessageTest, AnEntryIsReadAsItWasWrittenWithItsRecordAlone) {
  for (const Kind kind : {Kind::kPropose, Kind::kAppendEntry}) {
    ReplicaMessage read = Sent(ReplicaMessage::Of(kind, Entry(), Geometry()));
    ASSERT_TRUE(read.Unpack(Geometry()));
    const ReplicatedEntry entry = read.TakeEntry();
    EXPECT_EQ(entry.version, 5u);
    EXPECT_EQ(entry.made, Entry().made);
    EXPECT_EQ(entry.roles, Entry().roles);
    EXPECT_EQ(entry.hub, 2);
    EXPECT_EQ(entry.consumed, Entry().consumed);
    EXPECT_EQ(entry.missing, Entry().missing);
    EXPECT_EQ(entry.body, Entry().body.Part(0, Geometry().record_bytes()));
  }
}

TEST(ReplicaMessageTest, WordsOfMembersAreReadAsTheyWereWritten) {
  ReplicaMessage heartbeat{.kind = Kind::kHeartbeat};
  heartbeat.list = {kHasLeft, 2, 3};
  heartbeat.needs = {0, 1, 0};
  heartbeat.mets = {2, 0, 0};
  heartbeat.silences = {0, 1'234'567'890'123, 0};
  const ReplicaMessage written = heartbeat;
  heartbeat.Pack(Geometry());
  ReplicaMessage read = Sent(heartbeat);
  ASSERT_TRUE(read.Unpack(Geometry()));
  EXPECT_EQ(read.list, written.list);
  EXPECT_EQ(read.needs, written.needs);
  EXPECT_EQ(read.mets, written.mets);
  EXPECT_EQ(read.silences, written.silences);
  EXPECT_TRUE(read.body.empty());
}

// A reader of another number of members, bytes that are missing, and bytes that nobody reads.
TEST(ReplicaMessageTest, WordsOfOtherMembersAreRefused) {
  ReplicaMessage skip{.kind = Kind::kFastForward};
  skip.list = {4, 4, 4};
  skip.missing = {0, 1, 0};
  skip.Pack(Geometry());
  for (const ReplicaMessage& message :
       {skip, ReplicaMessage::Of(Kind::kPropose, Entry(), Geometry())}) {
    for (const int32_t size : {2, kSize, 4}) {
      ReplicaMessage read = Sent(message);
      EXPECT_EQ(read.Unpack(RoundMemory({.size = size, .hypers = 2}, RoundLayout({}, 64))),
                size == kSize);
    }
    ReplicaMessage longer = message, shorter = message;
    Bytes body(message.body.begin(), message.body.end());
    body.push_back(std::byte{0});
    longer.body = body;
    EXPECT_FALSE(longer.Unpack(Geometry()));
    shorter.body = message.body.Part(0, message.body.size() - 1);
    EXPECT_FALSE(shorter.Unpack(Geometry()));
  }
}

// The bounds are those of the longest message that a replica takes (Replica::LongestMessageBytes).
TEST(ReplicaMessageTest, NoneIsLongerThanItsBounds) {
  ReplicaMessage message = ReplicaMessage::Of(Kind::kAppendEntry, Entry(), Geometry());
  message.holders.resize(kSize);
  message.term = message.executed = message.hub = ~uint64_t{0};
  EXPECT_LE(message.EncodeHead().size(), ReplicaMessage::MostHeadBytes(Geometry()));
  EXPECT_LE(message.body.size(), ReplicaMessage::MostPackedBytes(Geometry()));
}

}  // namespace
}  // namespace covey
