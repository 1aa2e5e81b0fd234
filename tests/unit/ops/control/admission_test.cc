// Goal: strangers, however many, cost few places for a short time, and whoever holds the secret
// gets in beside them. Method: time and connections are numbers; each invariant by its own case,
// and a random one against what the header promises; FUZZ_SEED repeats it.
#include "ops/control/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "core/base/rng.h"

namespace covey {
namespace {

using Orders = Admission::Orders;
const std::string kName = "covey-0123456789abcdef0123456789abcdef";

std::string Record(const std::string& body) {
  std::string record("\x16\x03\x01", 3);
  record += static_cast<char>(body.size() >> 8);
  record += static_cast<char>(body.size());
  return record + body;
}

std::string Peer(int host, int port) {
  return "10.0.0." + std::to_string(host) + ":" + std::to_string(port);
}

TEST(GreetingTest, WhoseItIs) {
  EXPECT_EQ(GreetingOf("", kName), Greeting::kPart);
  EXPECT_EQ(GreetingOf("GET / HTTP/1.1", kName), Greeting::kRubbish);
  EXPECT_EQ(GreetingOf("\x16\x04", kName), Greeting::kRubbish);
  const std::string stranger = Record(std::string(300, 'x'));
  const std::string named = Record(std::string(300, 'x') + kName + "y");
  for (size_t length = 0; length < stranger.size(); ++length)
    ASSERT_EQ(GreetingOf(stranger.substr(0, length), kName), Greeting::kPart) << length;
  EXPECT_EQ(GreetingOf(stranger, kName), Greeting::kStranger);
  EXPECT_EQ(GreetingOf(named.substr(0, named.size() - 2), kName), Greeting::kPart);
  EXPECT_EQ(GreetingOf(named, kName), Greeting::kNamed);
  // A length that lies: no more is waited for than is looked at.
  const std::string endless =
      std::string("\x16\x03\x01\xff\xff", 5) + std::string(kMostGreetingBytes, '\0');
  EXPECT_EQ(GreetingOf(endless.substr(0, kMostGreetingBytes), kName), Greeting::kStranger);
}

TEST(PeerTest, AsGrpcCallsThem) {
  EXPECT_EQ(PlaceOfPeer("ipv4:1.2.3.4:5"), "1.2.3.4:5");
  EXPECT_EQ(PlaceOfPeer("ipv6:%5B::1%5D:5"), "::1:5");
  EXPECT_EQ(PlaceOfPeer("ipv6:[::1]:5"), "::1:5");
  EXPECT_EQ(PlaceOfPeer("ipv6:[fe80::1%eth0]:5"), "fe80::1:5");
  EXPECT_EQ(PlaceOfPeer(""), "");
  EXPECT_EQ(PlaceOfPeer("x"), "x");
}

TEST(AdmissionTest, ItIsTakenWhenItsGreetingIsWholeAndStaysUntilItHasProved) {
  Admission admission;
  Orders orders;
  admission.Arrive(7, Peer(1, 1), 0, false, &orders);
  admission.Decide(1, &orders);
  admission.Hear(7, Greeting::kPart, &orders);
  admission.Decide(2, &orders);
  EXPECT_TRUE(orders.take.empty());
  admission.Hear(7, Greeting::kNamed, &orders);
  admission.Decide(3, &orders);
  EXPECT_EQ(orders.take, std::vector<int>{7});
  EXPECT_EQ(admission.Welcome(Peer(1, 2)), -1);
  EXPECT_EQ(admission.Welcome(Peer(1, 1)), 7);
  admission.Decide(100 * Admission::kPatience, &orders);
  EXPECT_TRUE(orders.end.empty());
  EXPECT_EQ(admission.Next(0), kNever);
}

TEST(AdmissionTest, NobodyStaysLongerThanThePatienceWhateverItDoes) {
  EXPECT_EQ(Admission::kPatience, 2 * kSecond);
  Admission admission;
  Orders orders;
  for (int fd = 0; fd < 5; ++fd) admission.Arrive(fd, Peer(1, fd), fd, false, &orders);
  admission.Hear(1, Greeting::kPart, &orders);
  admission.Hear(2, Greeting::kStranger, &orders);
  admission.Hear(3, Greeting::kNamed, &orders);
  for (Time now = 0; now < Admission::kPatience; now += kMillisecond) {
    admission.Hear(1, Greeting::kPart, &orders);  // slow-loris
    admission.Decide(now, &orders);
  }
  EXPECT_TRUE(orders.end.empty());
  EXPECT_EQ(admission.Next(0), Admission::kLook);
  for (int fd = 0; fd < 5; ++fd) {
    admission.Decide(Admission::kPatience + fd, &orders);
    EXPECT_EQ(orders.end.back(), fd);
  }
  EXPECT_EQ(admission.size(), 0u);
}

TEST(AdmissionTest, RubbishAndWhoHasGoneAreEndedAtOnce) {
  Admission admission;
  Orders orders;
  for (int fd = 0; fd < 3; ++fd) admission.Arrive(fd, Peer(1, fd), 0, false, &orders);
  admission.Hear(1, Greeting::kRubbish, &orders);
  admission.Gone(2, &orders);
  admission.Gone(9, &orders);
  EXPECT_EQ(orders.end, (std::vector<int>{1, 2}));
}

TEST(AdmissionTest, StrangersGetIntoTlsSeldomAndAFewAtOnce) {
  Admission admission;
  Orders orders;
  for (int fd = 0; fd < 200; ++fd) {
    admission.Arrive(fd, Peer(1, fd), 0, false, &orders);
    admission.Hear(fd, Greeting::kStranger, &orders);
  }
  Time now = 0;
  for (; now < kSecond; now = admission.Next(now)) admission.Decide(now, &orders);
  now = kSecond;
  EXPECT_EQ(orders.take.size(), Admission::kStrangers.most);
  admission.Arrive(300, Peer(1, 300), now, false, &orders);
  admission.Hear(300, Greeting::kNamed, &orders);
  admission.Decide(now, &orders);
  EXPECT_EQ(orders.take.back(), 300);
  admission.Gone(0, &orders);  // of one in TLS: the next stranger
  admission.Decide(now, &orders);
  EXPECT_EQ(orders.take.size(), Admission::kStrangers.most + 2);
}

TEST(AdmissionTest, WhoListensIsLimitedToo) {
  Admission admission;
  Orders orders;
  for (int fd = 0; fd < 200; ++fd) {
    admission.Arrive(fd, Peer(1, fd), 0, false, &orders);
    admission.Hear(fd, Greeting::kNamed, &orders);
  }
  for (Time now = 0; now < 100 * kMillisecond; now += kMillisecond) admission.Decide(now, &orders);
  EXPECT_LE(orders.take.size(), 31u);
  for (Time now = 100 * kMillisecond; now < kSecond; now += kMillisecond)
    admission.Decide(now, &orders);
  EXPECT_EQ(orders.take.size(), Admission::kNamed.most);
}

// 10,000 connections in a second, of one address, which say nothing, a part, or all of a greeting:
// one of the same address that speaks within 20 ms gets in, and one of another within 1.9 s.
TEST(AdmissionTest, AFloodDoesNotShutOthersOut) {
  for (const int kind : {0, 1, 2}) {
    Admission admission;
    Orders orders;
    int fd = 0, near = -1, far = -1;
    for (Time now = 0; now < 4 * kSecond; now += kSecond / 10'000) {
      ++fd;
      admission.Arrive(fd, Peer(1, fd % 60'000), now, false, &orders);
      if (kind == 1) admission.Hear(fd, Greeting::kPart, &orders);
      if (kind == 2) admission.Hear(fd, Greeting::kStranger, &orders);
      if (now == kSecond) admission.Arrive(near = ++fd, Peer(1, 60'001), now, false, &orders);
      if (now == kSecond) admission.Arrive(far = ++fd, Peer(2, 1), now, false, &orders);
      if (now == kSecond + 20 * kMillisecond) admission.Hear(near, Greeting::kNamed, &orders);
      if (now == kSecond + 1900 * kMillisecond) admission.Hear(far, Greeting::kNamed, &orders);
      admission.Decide(now, &orders);
      ASSERT_LE(admission.size(), Admission::kPlaces);
    }
    for (const int one : {near, far})
      EXPECT_EQ(std::count(orders.take.begin(), orders.take.end(), one), 1) << kind << " " << one;
  }
}

TEST(AdmissionTest, WithoutADescriptorOneIsEndedWhoHasShownLeast) {
  Admission admission;
  Orders orders;
  admission.MakeRoom(&orders);
  EXPECT_TRUE(orders.end.empty());
  const Greeting heard[] = {Greeting::kNamed, Greeting::kStranger, Greeting::kNamed,
                            Greeting::kPart, Greeting::kStranger};
  for (int fd = 0; fd < 5; ++fd) admission.Arrive(fd, Peer(fd, 1), 0, false, &orders);
  for (int fd = 0; fd < 5; ++fd) admission.Hear(fd, heard[fd], &orders);
  admission.Decide(0, &orders);  // 0 and 1 are in TLS
  for (const int wanted : {4, 3, 1, 2}) {
    admission.MakeRoom(&orders);
    EXPECT_EQ(orders.end.back(), wanted);
  }
  admission.MakeRoom(&orders);
  EXPECT_EQ(orders.end.size(), 4u);  // the one in TLS by the name stays
  admission.Arrive(9, Peer(9, 1), 0, true, &orders);
  admission.Arrive(10, Peer(9, 2), 0, true, &orders);
  EXPECT_EQ(orders.end.back(), 9);
}

TEST(AdmissionTest, WhateverHappensItKeepsItsBounds) {
  const char* told = std::getenv("FUZZ_SEED");
  const uint64_t seed = told == nullptr ? 20261124 : std::strtoull(told, nullptr, 10);
  std::printf("FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  Admission admission;
  std::set<int> here, in_tls;
  Time now = 0;
  const char* seconds = std::getenv("FUZZ_SECONDS");
  const int rounds = 100'000 * std::clamp(seconds == nullptr ? 1 : std::atoi(seconds), 1, 10'000);
  for (int fd = 0; fd < rounds && !HasFailure(); ++fd) {
    Orders orders;
    const int some = fd - static_cast<int>(rng.Below(300));
    now += static_cast<Time>(rng.Below(kMillisecond));
    const std::string peer = Peer(fd % 7, fd);
    admission.Arrive(fd, peer, now, rng.Percent(5), &orders);
    here.insert(fd);
    const auto greeting = static_cast<Greeting>(rng.Below(4));
    if (rng.Percent(70)) admission.Hear(some, greeting, &orders);
    if (rng.Percent(10)) admission.Gone(some, &orders);
    admission.Decide(now, &orders);
    for (const int taken : orders.take) EXPECT_TRUE(in_tls.insert(taken).second);
    for (const int ended : orders.end) EXPECT_EQ(here.erase(ended), 1u);
    for (const int ended : orders.end) in_tls.erase(ended);
    if (!in_tls.empty() && rng.Percent(20)) {
      const int proved = *in_tls.begin();
      EXPECT_EQ(admission.Welcome(Peer(proved % 7, proved)), proved);
      in_tls.erase(proved);
      here.erase(proved);
    }
    EXPECT_EQ(admission.size(), here.size());
    EXPECT_LE(here.size(), Admission::kPlaces);
    EXPECT_LE(in_tls.size(), Admission::kNamed.most + Admission::kStrangers.most);
    EXPECT_GE(admission.Next(now), now);
  }
}

}  // namespace
}  // namespace covey
