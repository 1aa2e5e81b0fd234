// Packets of a peer in order: UCX keeps none between short ones and long ones.
#include "ops/transports/ucx/incoming.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace covey::ucx {
namespace {

Packet Numbered(uint64_t number, Kind kind = Kind::kMessage, uint64_t offset = 0) {
  return {.token = 0, .number = number, .offset = offset, .from = 0, .kind = kind};
}

bool Take(Incoming* incoming, const Packet& packet, const std::string& text) {
  return incoming->Take(packet, text.data(), text.size());
}

std::string TextOf(const Incoming::Arrival& arrival) {
  return {reinterpret_cast<const char*>(arrival.body.data()), arrival.body.size()};
}

TEST(IncomingTest, WhatOvertakesWaits) {
  Incoming incoming;
  EXPECT_TRUE(Take(&incoming, Numbered(3), "c"));
  EXPECT_TRUE(Take(&incoming, Numbered(2), ""));
  EXPECT_FALSE(incoming.IsReady());
  EXPECT_TRUE(Take(&incoming, Numbered(1), "a"));
  std::string all;
  while (incoming.IsReady()) all += TextOf(incoming.Next()) + ".";
  EXPECT_EQ(all, "a..c.");
}

TEST(IncomingTest, APutGoesToItsPlace) {
  Incoming incoming;
  std::string memory = "........";
  incoming.Land(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  EXPECT_TRUE(Take(&incoming, Numbered(1, Kind::kPut, 2), "xyz"));
  EXPECT_TRUE(Take(&incoming, Numbered(2, Kind::kPut, 7), "w"));
  EXPECT_TRUE(Take(&incoming, Numbered(3, Kind::kPut, 8), ""));
  EXPECT_EQ(memory, "..xyz..w");
}

TEST(IncomingTest, WhatDoesNotFitIsRefused) {
  Incoming incoming;
  std::string memory = "....";
  incoming.Land(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  EXPECT_FALSE(Take(&incoming, Numbered(1, Kind::kPut, 3), "xy"));
  EXPECT_FALSE(Take(&incoming, Numbered(1, Kind::kPut, UINT64_MAX), "xy"));
  EXPECT_FALSE(incoming.Announce(Numbered(1, Kind::kPut, 1), nullptr, 4));
  EXPECT_FALSE(incoming.Announce(Numbered(1), nullptr, Incoming::kMostMessage + 1));
  EXPECT_FALSE(Take(&incoming, Numbered(0), "")) << "numbers begin with 1";
  EXPECT_FALSE(Take(&incoming, Numbered(Incoming::kMostAhead + 1), ""));
  EXPECT_TRUE(Take(&incoming, Numbered(1), ""));
  EXPECT_FALSE(Take(&incoming, Numbered(1), "")) << "twice";
  EXPECT_EQ(memory, "....");
}

TEST(IncomingTest, WhatIsAnnouncedHoldsBackWhatFollows) {
  Incoming incoming;
  EXPECT_TRUE(incoming.Announce(Numbered(1), nullptr, 100));
  EXPECT_TRUE(Take(&incoming, Numbered(2), "b"));
  EXPECT_FALSE(incoming.IsReady());
}

}  // namespace
}  // namespace covey::ucx
