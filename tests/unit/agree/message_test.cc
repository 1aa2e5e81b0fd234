// Messages survive the wire, and no sequence of bytes harms the decoder.
#include "core/agree/message.h"

#include <gtest/gtest.h>

#include "core/base/rng.h"

namespace covey {
namespace {

Message Example() {
  Message m;
  m.type = MessageType::kAnnounce;
  m.id = {0x1234567890abcdef, "layer1.weight", 7};
  m.ranks = {0, 3, 5};
  m.signature.kind = Kind::kAllreduce;
  m.signature.dtype = DType::kBF16;
  m.signature.average = true;
  m.signature.prescale = 0.25;
  Shape shape;
  shape.ndim = 2;
  shape.dims[0] = 3;
  shape.dims[1] = 1LL << 40;
  m.signature.shapes = {shape, Shape{}};
  m.slot_bytes = 65536;
  m.blocks = {4096};
  m.text = "segment_bytes=65536;";
  m.peers = {1, ~uint64_t{0}, 7};
  return m;
}

TEST(MessageTest, SurvivesTheWire) {
  const Message sent = Example();
  Message got;
  ASSERT_TRUE(DecodeMessage(EncodeMessage(sent), &got));
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.ranks, sent.ranks);
  EXPECT_TRUE(got.signature == sent.signature);
  EXPECT_EQ(got.slot_bytes, sent.slot_bytes);
  EXPECT_EQ(got.blocks, sent.blocks);
  EXPECT_EQ(got.text, sent.text);
  EXPECT_EQ(got.peers, sent.peers);
}

TEST(MessageTest, PlansSurviveTheWire) {
  for (const MessageType type : {MessageType::kFreeze, MessageType::kFrozen, MessageType::kSwitch,
                                 MessageType::kRetire, MessageType::kIdle, MessageType::kDrop}) {
    Message sent{.type = type, .id = {7, "", 0}, .entry = 12, .slot_bytes = 64, .blocks = {3, 4}};
    sent.members = {{"a", 1, 0}, {"layer2.bias", 5, 4000000000u}};
    Message got;
    ASSERT_TRUE(DecodeMessage(EncodeMessage(sent), &got)) << NameOf(type);
    EXPECT_EQ(got.type, type);
    EXPECT_EQ(got.members, sent.members);
    EXPECT_EQ(got.blocks, sent.blocks);
    const Bytes bytes = EncodeMessage(sent);
    for (size_t length = 0; length < bytes.size(); ++length) {
      Message cut;
      EXPECT_FALSE(DecodeMessage(std::span(bytes).first(length), &cut)) << length;
    }
  }
}

TEST(MessageTest, EveryTruncationIsRefused) {
  const Bytes bytes = EncodeMessage(Example());
  for (size_t length = 0; length < bytes.size(); ++length) {
    Message got;
    EXPECT_FALSE(DecodeMessage(std::span(bytes).first(length), &got)) << length;
  }
}

TEST(MessageTest, RandomDamageNeverCrashes) {
  const Bytes good = EncodeMessage(Example());
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    Rng rng(seed);
    Bytes bytes = good;
    for (uint64_t hits = 1 + rng.Below(4); hits > 0; --hits)
      bytes[rng.Below(bytes.size())] = static_cast<std::byte>(rng.Below(256));
    Message got;
    const bool decoded = DecodeMessage(bytes, &got);
    EXPECT_TRUE(!decoded || got.signature.shapes.size() <= bytes.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace covey
