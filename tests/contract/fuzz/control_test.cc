// Goal: whatever bytes a node, a server or a stranger sends, it is taken within its bounds or
// refused. Method: valid messages changed at random (fuzz.h).
#include <google/protobuf/stubs/logging.h>

#include "ops/control/admission.h"
#include "ops/control/challenge.h"
#include "ops/control/grpc_messages.h"
#include "ops/control/secret.h"
#include "tests/contract/fuzz/fuzz.h"

namespace covey {
namespace {

const std::string kSecret = "9e7d24f0c1b85a3362d4f1a07bc8e9554f0d3a1c67b29e8840f5d6c7ab1392e4";

class ControlFuzzTest : public FuzzTest {
 protected:
  // protobuf makes room for a text as long as its length says, before it sees that it is cut short,
  // but for no more than this (its kSafeStringSize).
  static constexpr size_t kMostOfProtobuf = 50'000'000 + kMostBytes;

  ControlFuzzTest() { google::protobuf::SetLogHandler(nullptr); }

  template <class One>
  void RunOn(const std::string& valid, const One& one) {
    Run(
        {BytesOf(valid)}, 50'000, [&](const Bytes& bytes) { one(TextOf(bytes)); }, kMostOfProtobuf);
  }
};

TEST_F(ControlFuzzTest, Events) {
  ControlEvent event{.kind = ControlEvent::Kind::kView, .node = 1, .text = "text"};
  event.nodes.resize(3, {.node = 1, .slots = 2, .first_rank = 3, .host = "host", .host_id = "id"});
  event.texts = {"{}", "shared"};
  RunOn(ToMessage(event).SerializeAsString(), [](const std::string& bytes) {
    control::Event message;
    ControlEvent read;
    if (!message.ParseFromString(bytes) || !FromMessage(message, &read)) return;
    EXPECT_LE(read.nodes.size(), static_cast<size_t>(kMaxNodes));
    EXPECT_LE(read.texts.size(), static_cast<size_t>(kMaxNodes));
    for (const Node& node : read.nodes)
      EXPECT_LE(node.host.size() + node.host_id.size(), 2 * kMaxHostBytes);
  });
}

TEST_F(ControlFuzzTest, Reports) {
  const ControlReport report{ControlReport::Kind::kShare, "a rank has failed"};
  RunOn(ToMessage(report).SerializeAsString(), [](const std::string& bytes) {
    control::ReportRequest message;
    ControlReport read;
    if (!message.ParseFromString(bytes) || !FromMessage(message, &read)) return;
    EXPECT_LE(read.text.size(), kMaxControlTextBytes);
  });
}

TEST_F(ControlFuzzTest, WhatASealIsAround) {
  control::JoinRequest join;
  *join.mutable_node() = ToMessage(Node{.slots = 2, .host = "host", .host_id = "id"});
  control::Sealed sealed;
  sealed.set_session("session");
  sealed.set_body(join.SerializeAsString());
  RunOn(sealed.SerializeAsString(), [](const std::string& bytes) {
    control::Sealed outer;
    control::JoinRequest inner;
    Node node;
    if (!outer.ParseFromString(bytes) || !inner.ParseFromString(outer.body())) return;
    if (!FromMessage(inner.node(), &node)) return;
    EXPECT_LE(node.host.size(), kMaxHostBytes);
  });
}

// No nonce, proof or seal but the right one is taken, and each once.
TEST_F(ControlFuzzTest, ProofsAndSeals) {
  const std::string client = NewNonce(), server = NewNonce();
  const SessionKeys keys = MakeKeys(kSecret, client, server);
  const std::string seal = Seal(keys.client_seal, "Join", 1, "body");
  Run({BytesOf(client + keys.client_proof + seal)}, 3'000, [&](const Bytes& changed) {
    Door door(kSecret);
    const std::string bytes = TextOf(changed);
    const auto part = [&](size_t number) {
      const size_t at = std::min(bytes.size(), number * kNonceBytes);
      return bytes.substr(at, number < 2 ? kNonceBytes : std::string::npos);
    };
    std::string proof;
    const bool is_hello = door.Hello(0, kControlProtocol, part(0), server).ok();
    EXPECT_EQ(is_hello, part(0).size() == kNonceBytes);
    const bool is_proved = door.Prove(0, server, part(1), &proof).ok();
    EXPECT_EQ(is_proved, part(0) == client && part(1) == keys.client_proof);
    const bool is_open = door.Open(server, "Join", 1, "body", part(2)).ok();
    EXPECT_EQ(is_open, is_proved && part(2) == seal);
    EXPECT_FALSE(door.Open(server, "Join", 1, "body", part(2)).ok());
    EXPECT_FALSE(door.Prove(0, server, part(1), &proof).ok());
  });
}

TEST_F(ControlFuzzTest, Greetings) {
  const std::string name = "covey-0123456789abcdef0123456789abcdef";
  const std::string head("\x16\x03\x01\x00\x64", 5);
  const std::string hello = head + std::string(40, 'x') + name + std::string(100 - 40 - 38, 'y');
  ASSERT_EQ(GreetingOf(hello, name), Greeting::kNamed);
  Run({BytesOf(hello), BytesOf(head + std::string(100, 'x'))}, 100'000, [&](const Bytes& changed) {
    const std::string bytes = TextOf(changed);
    const Greeting greeting = GreetingOf(bytes, name);
    const bool is_tls = bytes.empty() || (bytes[0] == 0x16 && (bytes.size() < 2 || bytes[1] == 3));
    EXPECT_EQ(greeting == Greeting::kRubbish, !is_tls);
    if (is_tls) {
      EXPECT_EQ(greeting == Greeting::kNamed, bytes.find(name) != std::string::npos);
    }
  });
}

TEST_F(ControlFuzzTest, PeersAndSecrets) {
  Run({BytesOf("ipv6:%5Bfe80::1%25eth0%5D:29500"), BytesOf("ipv4:1.2.3.4:5"), BytesOf(kSecret)},
      100'000, [&](const Bytes& changed) {
        const std::string text = TextOf(changed);
        EXPECT_LE(PlaceOfPeer(text).size(), text.size());
        if (CheckSecret(text).ok()) {
          EXPECT_GE(text.size(), 43u);
        }
      });
}

}  // namespace
}  // namespace covey
