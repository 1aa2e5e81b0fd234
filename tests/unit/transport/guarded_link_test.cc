// A fast link behind a guard: how pairs meet, what each side is told, and whose losses count.
#include "core/transport/guarded_link.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <string>

#include "core/base/clock.h"
#include "tests/unit/transport/memory_links.h"

namespace covey {
namespace {

constexpr Time kHardLimit = 60 * kSecond;

// Two ranks, each with a guard and a fast link.
class GuardedLinkTest : public ::testing::Test {
 protected:
  GuardedLinkTest() {
    for (int r = 0; r < 2; ++r) {
      auto fast = std::make_unique<MemoryLink>(&fast_network, Rank{r}, &fast_faults[r]);
      this->fast[r] = fast.get();
      auto guard = std::make_unique<MemoryLink>(&guard_network, Rank{r}, &guard_faults[r]);
      EXPECT_EQ(GuardedLink::Open(std::move(guard), std::move(fast), &links[r]), Status::Ok());
    }
  }
  // Both look, and sleep on their descriptors in between.
  template <class Done>
  void Until(const Done& done) {
    const Time limit = MonotonicNow() + kHardLimit;
    while (!done()) {
      ASSERT_LT(MonotonicNow(), limit);
      pollfd wakers[] = {{links[0]->Descriptor(), POLLIN, 0}, {links[1]->Descriptor(), POLLIN, 0}};
      poll(wakers, 2, 10);
      for (int r = 0; r < 2; ++r) Look(r);
    }
  }
  void Look(int r) {
    Rank from = kNoRank;
    std::span<const std::byte> message;
    while (links[r]->Receive(&from, &message)) mail[r].emplace_back(message.begin(), message.end());
    for (PeerLoss& loss : links[r]->PollLost()) losses[r].push_back(std::move(loss));
  }
  void Meet() {
    Until([&] { return links[0]->Send(Rank{1}, kWord); });
    Until([&] { return mail[1].size() == 1; });
  }

  const Bytes kWord{std::byte{1}, std::byte{2}};
  MemoryNetwork guard_network{2}, fast_network{2};
  Faults guard_faults[2], fast_faults[2];
  MemoryLink* fast[2] = {};
  std::unique_ptr<GuardedLink> links[2];
  std::vector<Bytes> mail[2];
  std::vector<PeerLoss> losses[2];
};

TEST_F(GuardedLinkTest, APairMeetsWhenOneSends) {
  EXPECT_FALSE(links[0]->Send(Rank{1}, kWord)) << "the peer has told no address";
  Meet();
  EXPECT_EQ(mail[1][0], kWord);
  for (int r = 0; r < 2; ++r) {
    const MemoryLink::Meeting& own = fast[r]->met[static_cast<size_t>(1 - r)];
    EXPECT_EQ(own.address, 1 - r);
    EXPECT_NE(own.expected, 0u);
    EXPECT_NE(own.expected, own.used) << "each direction has a token of its own";
    EXPECT_EQ(own.expected, fast[1 - r]->met[static_cast<size_t>(r)].used);
  }
  EXPECT_TRUE(losses[0].empty() && losses[1].empty());
}

TEST_F(GuardedLinkTest, TokensAreDrawn) {
  Meet();
  const uint64_t before = fast[0]->met[1].expected;
  MemoryNetwork networks[2] = {MemoryNetwork(2), MemoryNetwork(2)};
  Faults faults[2];
  std::unique_ptr<GuardedLink> other;
  auto another = std::make_unique<MemoryLink>(&networks[1], Rank{0}, &faults[1]);
  MemoryLink* seen = another.get();
  EXPECT_EQ(GuardedLink::Open(std::make_unique<MemoryLink>(&networks[0], Rank{0}, &faults[0]),
                              std::move(another), &other),
            Status::Ok());
  EXPECT_FALSE(other->Send(Rank{1}, kWord));
  EXPECT_NE(seen->met[1].expected, before);
}

TEST_F(GuardedLinkTest, AGuardWithoutRoomIsAskedAgain) {
  guard_faults[0].refusals = 3;
  guard_faults[1].refusals = 3;
  Meet();
  EXPECT_EQ(guard_faults[0].refusals, 0);
  EXPECT_EQ(guard_faults[1].refusals, 0);
}

TEST_F(GuardedLinkTest, ALossOnEitherLinkIsToldOnce) {
  Meet();
  guard_faults[0].losses = {{Rank{1}, "is gone"}};
  fast_faults[0].losses = {{Rank{1}, "is gone, too"}};
  fast_faults[1].losses = {{Rank{0}, "is silent"}};
  Until([&] { return !losses[0].empty() && !losses[1].empty(); });
  ASSERT_EQ(losses[0].size(), 1u);
  EXPECT_EQ(losses[0][0].how, "is gone");
  EXPECT_EQ(losses[1][0].how, "is silent");
  links[0]->Drop(Rank{1});
  EXPECT_EQ(guard_faults[0].dropped, std::vector<Rank>{Rank{1}});
  EXPECT_EQ(fast_faults[0].dropped, std::vector<Rank>{Rank{1}});
  EXPECT_TRUE(links[0]->Send(Rank{1}, kWord)) << "to a lost peer everything may go";
}

TEST_F(GuardedLinkTest, APeerThatIsLostBeforeItHasMetTakesAllMessages) {
  guard_faults[0].losses = {{Rank{1}, "is gone"}};
  Look(0);
  EXPECT_TRUE(links[0]->Send(Rank{1}, kWord));
  EXPECT_TRUE(links[0]->Put(Rank{1}, 0, kWord));
  EXPECT_EQ(losses[0].size(), 1u);
}

TEST_F(GuardedLinkTest, MessagesOfBothLinksRing) {
  pollfd wake{links[1]->Descriptor(), POLLIN, 0};
  for (MemoryNetwork* network : {&guard_network, &fast_network}) {
    EXPECT_EQ(poll(&wake, 1, 0), 0);
    network->Send(Rank{0}, Rank{1}, Bytes(9));
    EXPECT_EQ(poll(&wake, 1, 0), 1);
    Rank from = kNoRank;
    Bytes message;
    while (network->Receive(Rank{1}, &from, &message)) continue;
  }
}

TEST_F(GuardedLinkTest, ASecondOfferIsRefused) {
  Meet();
  links[1]->Hear(Rank{0}, Bytes(9));
  Look(1);
  ASSERT_EQ(losses[1].size(), 1u);
  EXPECT_EQ(losses[1][0].how, "sends what no rank of this version sends");
}

TEST_F(GuardedLinkTest, AShortOfferIsRefused) {
  links[0]->Hear(Rank{1}, Bytes(3));
  Look(0);
  ASSERT_EQ(losses[0].size(), 1u);
  EXPECT_EQ(losses[0][0].how, "sends what no rank of this version sends");
}

}  // namespace
}  // namespace covey
