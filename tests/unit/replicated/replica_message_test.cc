// A message that is written and read is the same, and bytes that are none are refused.
#include "core/replicated/replica_message.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

ReplicaMessage Full() {
  ReplicaMessage message{.kind = ReplicaMessage::Kind::kAppendEntry,
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
  message.content = {.first = 20, .last = 21, .count = 22};
  message.consumed = 23;
  message.relay = 24;
  message.list = {1, 2};
  message.missing = {3};
  message.hypers = {0.5, -1};
  message.body = Bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  return message;
}

TEST(ReplicaMessageTest, IsReadAsItWasWritten) {
  const Bytes bytes = Full().Encode();
  ReplicaMessage message;
  ASSERT_TRUE(ReplicaMessage::Decode(bytes, &message));
  EXPECT_EQ(message.Encode(), bytes);
  EXPECT_EQ(message.kind, ReplicaMessage::Kind::kAppendEntry);
  EXPECT_EQ(message.max_wait, 15);
  EXPECT_TRUE(message.left && message.quiet && !message.is_no_op);
  EXPECT_EQ(message.content.count, 22u);
  EXPECT_EQ(message.consumed, 23u);
  EXPECT_EQ(message.relay, 24u);
  EXPECT_EQ(message.snapshot_version, 19u);
  EXPECT_EQ(message.hypers, (std::vector<double>{0.5, -1}));
  EXPECT_EQ(message.body, Full().body);
}

// The body begins aligned after lists of any length, and is not copied.
TEST(ReplicaMessageTest, ABodyIsAPartOfTheBytesWhereElementsMayBegin) {
  for (size_t numbers = 0; numbers < 5; ++numbers) {
    ReplicaMessage written = Full();
    written.list.resize(numbers);
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

}  // namespace
}  // namespace covey
