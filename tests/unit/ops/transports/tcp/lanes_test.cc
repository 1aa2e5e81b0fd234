// Lanes: the order that they keep with messages, who may add one, and what their end means. Method:
// the lanes of rank 0 alone, or the whole link of rank 0; the test plays rank 1 by hand.
#include "ops/transports/tcp/lanes.h"

#include "core/transport/peer_book.h"
#include "tests/unit/ops/transports/job.h"

namespace covey::tcp {
namespace {

constexpr int32_t kLanes = 2;
constexpr size_t kSize = 2 * Lanes::kLarge;

Terms TermsOf(int rank, const std::string& security) {
  PeerBook book;
  EXPECT_TRUE(
      PeerBook::Parse(
          "covey book 1\nkey " + std::string(64, 'a') + "\nsecurity tls\n0 0 127.0.0.1 1\n", &book)
          .ok());
  std::unique_ptr<TlsKey> key;
  EXPECT_TRUE(TlsKey::Make(book.key, "covey tcp 1, " + security + ", 2 ranks", &key).ok());
  return {Rank{rank}, 2, 10 * kSecond, security == "tls", std::move(key), kLanes};
}

Place PlaceOf(const Wire& first, int32_t lane) { return {lane, first.binding}; }

// Rank 1 by hand.
class Player {
 public:
  Player(uint16_t port, const std::string& security)
      : address_(AddressOf("127.0.0.1", port)), terms_(TermsOf(1, security)) {}

  // A connection whose handshake has begun.
  std::unique_ptr<Handshake> Dial(const Place& place) const {
    Socket socket;
    EXPECT_NE(Socket::Dial(address_, kSecond, &socket), Outcome::kEnded);
    return std::make_unique<Handshake>(terms_, std::move(socket), Rank{0}, place);
  }

 private:
  const Address address_;
  const Terms terms_;
};

class SecurityTest : public ::testing::TestWithParam<const char*> {};

TEST(CountLanesTest, GoesByTheCoresOfARank) {
  EXPECT_EQ(CountLanes(0, 2, 1), 0);
  EXPECT_EQ(CountLanes(0, 3, 1), 2);
  EXPECT_EQ(CountLanes(0, 16, 1), 4);
  EXPECT_EQ(CountLanes(0, 16, 4), 3);
  EXPECT_EQ(CountLanes(0, 16, 8), 0);
  EXPECT_EQ(CountLanes(1, 16, 1), 0);
  EXPECT_EQ(CountLanes(2, 1, 1), 2);
  EXPECT_EQ(CountLanes(9, 16, 1), 4);
}

// ---- Lanes alone -------------------------------------------------------------------------------

class LanesTest : public SecurityTest {
 protected:
  LanesTest() : listener_(Listen(&port_)), player_(port_, GetParam()) {
    std::unique_ptr<Wire> first[2];
    EXPECT_TRUE(Meet({}, first, [](Handshake* known) { return known->Agree(); }));
    EXPECT_EQ(first[0]->lanes, kLanes);
    first_ = std::move(first[1]);
    lanes_.Agree(&common_, Rank{1}, *first[0], false);
    lanes_.Land(memory_);
  }
  ~LanesTest() override { close(listener_); }

  // Dials, and lets `adopt` decide on the other side. True: it has, and the player agrees.
  template <class Adopt>
  bool Meet(const Place& place, std::unique_ptr<Wire>* wires, const Adopt& adopt) {
    std::unique_ptr<Handshake> dialed = player_.Dial(place);
    Socket socket(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC), kSecond);
    std::unique_ptr<Handshake> known;
    for (;;) {
      const Outcome outcome = dialed->Step();
      if (outcome == Outcome::kEnded) return false;
      if (outcome == Outcome::kDone) break;
      if (known == nullptr)
        known = std::make_unique<Handshake>(terms_, std::move(socket), greeting_);
      const Outcome heard = known->Step();
      if (heard == Outcome::kEnded || (heard == Outcome::kDone && !adopt(known.get())))
        return false;
    }
    if (place.lane < 0) wires[0] = known->Take();
    wires[place.lane < 0 ? 1 : 0] = dialed->Take();
    return true;
  }
  bool Join(int32_t place, Stream* stream, bool* is_second) {
    std::unique_ptr<Wire> wire;
    const auto adopt = [this, is_second](Handshake* known) {
      return lanes_.Adopt(known, is_second);
    };
    if (!Meet(PlaceOf(*first_, place), &wire, adopt)) return false;
    stream->Open(std::move(wire));
    return true;
  }
  void OpenAll() {
    bool is_second = false;
    for (int32_t i = 0; i < kLanes; ++i) EXPECT_TRUE(Join(i, &streams_[i], &is_second));
  }
  // A worker has news.
  void Hear() {
    pollfd news{crew_.bell().fd(), POLLIN, 0};
    ASSERT_EQ(poll(&news, 1, 60000), 1) << "no worker rings";
    crew_.bell().Hear();
  }
  void Give(int32_t lane, uint64_t offset, std::span<const std::byte> data) {
    ASSERT_TRUE(streams_[lane].Put(offset, data));
    streams_[lane].Flush();
  }

  Bytes memory_ = Bytes(kSize);
  const Terms terms_ = TermsOf(0, GetParam());
  const std::vector<Address> addresses_ = std::vector<Address>(2);
  const std::span<const std::byte> greeting_;
  Poller poller_;
  Crew crew_;
  Lanes::Common common_{terms_, addresses_, poller_, crew_, 0};
  Lanes lanes_;
  uint16_t port_ = 0;
  const int listener_;
  Player player_;
  std::unique_ptr<Wire> first_;  // the player's
  Stream streams_[kLanes];       // the player's
};
INSTANTIATE_TEST_SUITE_P(Security, LanesTest, ::testing::Values("auth", "tls"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(LanesTest, PartsHaveLandedOnceEachLaneHasLandedItsShare) {
  OpenAll();
  const Bytes data = Pattern(1000, 1);
  EXPECT_EQ(lanes_.HasLanded(0), Lanes::Landing::kDone);
  EXPECT_EQ(lanes_.HasLanded(2), Lanes::Landing::kWait);
  Give(0, 7, data);
  Hear();
  EXPECT_EQ(lanes_.HasLanded(1), Lanes::Landing::kDone);
  EXPECT_EQ(lanes_.HasLanded(2), Lanes::Landing::kWait) << "the other lane has landed nothing";
  EXPECT_EQ(lanes_.HasLanded(3), Lanes::Landing::kWait);
  Give(0, 2000, data);
  Hear();
  EXPECT_EQ(lanes_.HasLanded(2), Lanes::Landing::kWait) << "nor has it now";
  Give(1, 5000, data);
  Hear();
  EXPECT_EQ(lanes_.HasLanded(3), Lanes::Landing::kDone);
  EXPECT_EQ(std::memcmp(memory_.data() + 7, data.data(), data.size()), 0);
  EXPECT_EQ(std::memcmp(memory_.data() + 5000, data.data(), data.size()), 0);
  EXPECT_EQ(lanes_.HasLanded(4), Lanes::Landing::kWait);
}

TEST_P(LanesTest, APutIsCutInAPartForEachLane) {
  EXPECT_FALSE(lanes_.Takes(kSize));
  OpenAll();
  EXPECT_TRUE(lanes_.Takes(Lanes::kLarge));
  EXPECT_FALSE(lanes_.Takes(Lanes::kLarge - 1));
  const Bytes data = Pattern(kSize + 5, 3);
  Bytes landed(kSize + 12);
  ASSERT_TRUE(lanes_.Put(7, data));
  EXPECT_EQ(lanes_.given(), 2u);
  for (Stream& stream : streams_) {
    stream.Land(landed);
    std::span<const std::byte> message;
    while (stream.landed() == 0) {
      pollfd news{stream.fd(), POLLIN, 0};
      ASSERT_EQ(poll(&news, 1, 60000), 1);
      stream.BeginPass();
      ASSERT_EQ(stream.Receive(&message), Outcome::kWait);
    }
  }
  EXPECT_EQ(std::memcmp(landed.data() + 7, data.data(), data.size()), 0);
  while (!lanes_.IsConfirmed()) {
  }
}

TEST_P(LanesTest, TellsOfRoomOnceThereIs) {
  OpenAll();
  const Bytes data = Pattern(kSize, 1);
  size_t puts = 0;
  while (lanes_.Put(0, data)) ++puts;
  EXPECT_GE(puts, Stream::kMostParcels);
  Bytes landed(kSize);
  pollfd news[] = {
      {crew_.bell().fd(), POLLIN, 0}, {streams_[0].fd(), POLLIN, 0}, {streams_[1].fd(), POLLIN, 0}};
  for (Stream& stream : streams_) stream.Land(landed);
  for (;;) {
    ASSERT_GT(poll(news, 3, 60000), 0) << "no worker tells of room";
    if (news[0].revents != 0) {
      crew_.bell().Hear();
      if (lanes_.Put(0, data)) break;
    }
    std::span<const std::byte> message;
    for (Stream& stream : streams_) {
      stream.BeginPass();
      ASSERT_EQ(stream.Receive(&message), Outcome::kWait);
    }
  }
  lanes_.Close();
}

TEST_P(LanesTest, OnlyTheBindingOfTheFirstConnectionAddsOne) {
  std::unique_ptr<Wire> wire;
  bool is_second = false;
  const auto adopt = [this, &is_second](Handshake* known) {
    return lanes_.Adopt(known, &is_second);
  };
  Place other = PlaceOf(*first_, 0);
  other.binding[0] ^= 1;
  EXPECT_FALSE(Meet(other, &wire, adopt));
  EXPECT_FALSE(Meet(PlaceOf(*first_, kLanes), &wire, adopt)) << "there is no such place";
  EXPECT_FALSE(is_second);
  OpenAll();
  EXPECT_FALSE(Join(1, &streams_[1], &is_second));
  EXPECT_TRUE(is_second);
}

TEST_P(LanesTest, AnEndedLaneLandsNothingMore) {
  OpenAll();
  const Bytes data = Pattern(1000, 1);
  Give(0, 0, data);
  Give(1, 1000, data);
  streams_[1] = Stream();
  while (lanes_.HasLanded(2) == Lanes::Landing::kWait) Hear();
  EXPECT_EQ(lanes_.HasLanded(2), Lanes::Landing::kDone) << "it was given before the end";
  Give(0, 0, data);
  while (lanes_.HasLanded(4) == Lanes::Landing::kWait) Hear();
  EXPECT_EQ(lanes_.HasLanded(4), Lanes::Landing::kEnded);
  EXPECT_FALSE(lanes_.IsMalformed());
  EXPECT_TRUE(lanes_.Put(0, memory_)) << "what is sent to the lost goes nowhere";
  lanes_.Close();
}

TEST_P(LanesTest, AMessageHasNoPlaceInALane) {
  OpenAll();
  ASSERT_TRUE(streams_[0].Send(Pattern(10, 1)));
  Hear();
  EXPECT_TRUE(lanes_.IsMalformed());
}

TEST_P(LanesTest, APartOutsideOfTheMemoryIsMalformed) {
  OpenAll();
  Give(1, kSize - 9, Pattern(10, 1));
  Hear();
  EXPECT_TRUE(lanes_.IsMalformed());
}

TEST_P(LanesTest, AClosedOneTouchesNothing) {
  OpenAll();
  const Bytes data = Pattern(1000, 1);
  EXPECT_EQ(lanes_.HasLanded(1), Lanes::Landing::kWait);
  lanes_.Close();
  for (int32_t i = 0; i < kLanes; ++i) Give(i, 0, data);
  EXPECT_EQ(memory_[1], std::byte{0});
}

// ---- The link of rank 0 ------------------------------------------------------------------------

class LanesLinkTest : public SecurityTest {
 protected:
  LanesLinkTest() : job_(2, GetParam(), 10 * kSecond, AF_INET, nullptr, kLanes) {
    job_.Open(0);
    job_.link(0).Land(Rank{1}, memory_);
    std::unique_ptr<Wire> wire = Connect({});
    EXPECT_NE(wire, nullptr);
    binding_ = wire->binding;
    first_.Open(std::move(wire));
    first_.AskForLanes();  // before, the door is shut
    first_.Flush();
  }
  // Null: rank 0 has closed it.
  std::unique_ptr<Wire> Connect(const Place& place) {
    std::unique_ptr<Handshake> dialed = player_.Dial(place);
    Outcome outcome = Outcome::kWait;
    job_.Until([&] { return (outcome = dialed->Step()) != Outcome::kWait; });
    return outcome == Outcome::kDone ? dialed->Take() : nullptr;
  }
  void OpenLane(int32_t lane) {
    std::unique_ptr<Wire> wire = Connect({lane, binding_});
    ASSERT_NE(wire, nullptr);
    lanes_[lane].Open(std::move(wire));
  }
  void Give(int32_t lane, uint64_t offset, std::span<const std::byte> data) {
    ASSERT_TRUE(lanes_[lane].Put(offset, data));
    lanes_[lane].Flush();
  }
  // A message of rank 0.
  void Read(Stream* stream) {
    std::span<const std::byte> message;
    for (;;) {
      job_.Pump(0);
      stream->BeginPass();
      if (stream->Receive(&message) == Outcome::kDone) return;
      pollfd news[] = {{job_.link(0).Descriptor(), POLLIN, 0}, {stream->fd(), POLLIN, 0}};
      ASSERT_GT(poll(news, 2, 60000), 0) << "rank 0 sends nothing";
    }
  }
  void LookOften() {
    for (int i = 0; i < 100; ++i) job_.Pump(0);
  }

  Bytes memory_ = Bytes(4 * kSize);
  Job job_;
  const Player player_{job_.port(0), GetParam()};
  std::array<unsigned char, 16> binding_{};
  Stream first_, lanes_[kLanes];
};
INSTANTIATE_TEST_SUITE_P(Security, LanesLinkTest, ::testing::Values("auth", "tls"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(LanesLinkTest, AMessageWaitsForThePutsBeforeIt) {
  const Bytes data = Pattern(kSize, 5);
  ASSERT_TRUE(first_.Send(Pattern(1, 1), 0));
  ASSERT_TRUE(first_.Send(Pattern(2, 2), 2));
  ASSERT_TRUE(first_.Send(Pattern(3, 3), 2));
  LookOften();
  EXPECT_EQ(job_.mail(0).size(), 1u);
  OpenLane(0);
  Give(0, 0, std::span(data).first(kSize / 2));
  OpenLane(1);
  LookOften();
  EXPECT_EQ(job_.mail(0).size(), 1u);
  Give(1, kSize / 2, std::span(data).subspan(kSize / 2));
  job_.Until([&] { return job_.mail(0).size() == 3; });
  EXPECT_EQ(std::memcmp(memory_.data(), data.data(), kSize), 0);
  EXPECT_EQ(job_.mail(0)[1].bytes.size(), 2u);
  EXPECT_EQ(job_.mail(0)[2].bytes.size(), 3u);
  EXPECT_TRUE(job_.losses(0).empty());
}

TEST_P(LanesLinkTest, AStrangerAddsNoLane) {
  Place other{0, binding_};
  other.binding[15] ^= 1;
  EXPECT_EQ(Connect(other), nullptr);
  EXPECT_EQ(Connect({kLanes, binding_}), nullptr);
  EXPECT_EQ(Connect({}), nullptr) << "the pair has a first connection";
  ASSERT_TRUE(first_.Send(Pattern(1, 1)));
  job_.Until([&] { return job_.mail(0).size() == 1; });
  EXPECT_TRUE(job_.losses(0).empty());
}

TEST_P(LanesLinkTest, ASecondOneForAPlaceIsTheEnd) {
  OpenLane(1);
  EXPECT_EQ(Connect({1, binding_}), nullptr);
  job_.Until([&] { return job_.losses(0).size() == 1; });
  EXPECT_EQ(job_.losses(0)[0].how, "has died, or its host has (connection reset)");
}

TEST_P(LanesLinkTest, ThePeerIsLostAfterItsLastWordsWhenAPartIsMissing) {
  OpenLane(0);
  OpenLane(1);
  Give(0, 0, Pattern(1000, 1));
  Give(1, 1000, Pattern(1000, 1));
  Give(0, 0, Pattern(1000, 1));
  ASSERT_TRUE(first_.Send(Pattern(1, 1), 3));
  ASSERT_TRUE(first_.Send(Pattern(2, 2), 4));
  lanes_[1] = Stream();
  job_.Until([&] { return job_.losses(0).size() == 1; });
  ASSERT_EQ(job_.mail(0).size(), 1u);
  EXPECT_EQ(job_.mail(0)[0].bytes.size(), 1u);
  EXPECT_EQ(job_.losses(0)[0].how.find("has died, or its host has ("), 0u);
}

TEST_P(LanesLinkTest, WhatNoRankSendsIsTheEnd) {
  OpenLane(0);
  Give(0, memory_.size(), Pattern(1, 1));
  job_.Until([&] { return job_.losses(0).size() == 1; });
  EXPECT_EQ(job_.losses(0)[0].how, "sends what no rank of this version sends");
}

// A lane is dialed, and its handshake goes no further: the first connection has all puts.
TEST_P(LanesLinkTest, PutsGoByTheFirstConnectionUntilAllLanesAreOpen) {
  Bytes landed(2 * kSize);
  first_.Land(landed);
  for (Stream& lane : lanes_) lane.Land(landed);
  const Bytes data = Pattern(kSize, 1);
  job_.Put(0, 1, 0, data);
  OpenLane(0);
  std::unique_ptr<Handshake> half = player_.Dial({1, binding_});
  half->Step();
  job_.Put(0, 1, kSize, data);
  job_.Send(0, 1, Pattern(1, 1));
  Read(&first_);
  EXPECT_EQ(first_.landed(), 2u);
  EXPECT_EQ(first_.after(), 0u);
  EXPECT_EQ(std::memcmp(landed.data() + kSize, data.data(), kSize), 0);
  half.reset();
  OpenLane(1);
  job_.Put(0, 1, 0, data);
  job_.Send(0, 1, Pattern(1, 1));
  Read(&first_);
  EXPECT_EQ(first_.after(), 2u);
  EXPECT_EQ(first_.landed(), 2u) << "it went by the lanes";
  job_.Close(0);  // until then the data may be read
}

}  // namespace
}  // namespace covey::tcp
