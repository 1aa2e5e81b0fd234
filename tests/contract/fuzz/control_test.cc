// Goal: whatever bytes a node or a server sends as a message, it is taken within its bounds or
// refused. Method: as decoders_test.cc: valid messages changed at random from a printed seed;
// FUZZ_SEED repeats a run, FUZZ_ROUNDS makes a longer one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/base/rng.h"
#include "ops/control/grpc_messages.h"

namespace covey {
namespace {

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class ControlFuzzTest : public testing::Test {
 protected:
  ControlFuzzTest() : rng_(seed_) {
    std::printf("FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

  std::string Change(std::string bytes) {
    for (uint64_t changes = 1 + rng_.Below(4); changes > 0; --changes) {
      const size_t at = bytes.empty() ? 0 : rng_.Below(bytes.size());
      const auto value = static_cast<char>(rng_.Percent(30) ? 0xff : rng_.Next());
      switch (rng_.Below(4)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes.insert(at, rng_.Below(20), value);
          break;
        case 2:
          bytes += bytes.substr(at, 100);
          bytes.resize(std::min<size_t>(bytes.size(), 4096));
          break;
        default:
          if (!bytes.empty()) bytes[at] = value;
      }
    }
    return bytes;
  }

  template <class One>
  void Run(const std::string& valid, const One& one) {
    const uint64_t rounds = Number("FUZZ_ROUNDS", 50'000);
    std::string last = valid;
    for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
      last = Change(rng_.Percent(50) ? valid : last);
      one(last);
    }
  }

  const uint64_t seed_ = Number("FUZZ_SEED", 20261124);
  Rng rng_;
};

TEST_F(ControlFuzzTest, Events) {
  ControlEvent event{.kind = ControlEvent::Kind::kView, .node = 1, .text = "text"};
  event.nodes.resize(3, {.node = 1, .slots = 2, .first_rank = 3, .host = "host", .host_id = "id"});
  Run(ToMessage(event).SerializeAsString(), [](const std::string& bytes) {
    control::Event message;
    ControlEvent read;
    if (!message.ParseFromString(bytes) || !FromMessage(message, &read)) return;
    EXPECT_LE(read.nodes.size(), static_cast<size_t>(kMaxNodes));
    for (const Node& node : read.nodes)
      EXPECT_LE(node.host.size() + node.host_id.size(), 2 * kMaxHostBytes);
  });
}

TEST_F(ControlFuzzTest, Reports) {
  const ControlReport report{ControlReport::Kind::kFailed, "a rank has failed"};
  Run(ToMessage(report).SerializeAsString(), [](const std::string& bytes) {
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
  Run(sealed.SerializeAsString(), [](const std::string& bytes) {
    control::Sealed outer;
    control::JoinRequest inner;
    Node node;
    if (!outer.ParseFromString(bytes) || !inner.ParseFromString(outer.body())) return;
    if (!FromMessage(inner.node(), &node)) return;
    EXPECT_LE(node.host.size(), kMaxHostBytes);
  });
}

}  // namespace
}  // namespace covey
