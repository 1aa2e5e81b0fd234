// The ranks' choice of a network: one verdict for all, whatever comes before it.
// Method: a thread for each rank, over links in memory.
#include "core/transport/link_agreement.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

#include "core/base/clock.h"
#include "tests/unit/transport/memory_links.h"

namespace covey {
namespace {

constexpr int kSize = 4;
constexpr Time kHardLimit = 60 * kSecond;

class LinkAgreementTest : public ::testing::Test {
 protected:
  LinkAgreementTest() {
    for (int r = 0; r < kSize; ++r)
      links.push_back(std::make_unique<MemoryLink>(&network, Rank{r}, &faults[r]));
  }
  void Agree(const std::array<std::string, kSize>& obstacles) {
    std::vector<std::thread> ranks;
    for (int r = 0; r < kSize; ++r)
      ranks.emplace_back([&, r] {
        statuses[r] =
            AgreeOnLink(links[r].get(), obstacles[r], MonotonicNow() + kHardLimit, &verdicts[r]);
      });
    for (std::thread& rank : ranks) rank.join();
  }

  MemoryNetwork network{kSize};
  Faults faults[kSize];
  std::vector<std::unique_ptr<MemoryLink>> links;
  Status statuses[kSize];
  LinkVerdict verdicts[kSize];
};

TEST_F(LinkAgreementTest, WithoutAnObstacleNoneIsHindered) {
  Agree({"", "", "", ""});
  for (int r = 0; r < kSize; ++r) {
    EXPECT_EQ(statuses[r], Status::Ok());
    EXPECT_EQ(verdicts[r].hindered, kNoRank);
    EXPECT_TRUE(verdicts[r].early.empty());
  }
}

TEST_F(LinkAgreementTest, AllHearOfTheLowestRankThatHasOne) {
  for (const bool leader : {false, true}) {
    Agree({leader ? "no" : "", "", "no device", "no plug-in"});
    for (int r = 0; r < kSize; ++r) {
      EXPECT_EQ(statuses[r], Status::Ok());
      EXPECT_EQ(verdicts[r].hindered, leader ? Rank{0} : Rank{2});
      EXPECT_EQ(verdicts[r].obstacle, leader ? "no" : "no device");
    }
  }
}

TEST_F(LinkAgreementTest, WhatComesEarlyIsKeptInOrder) {
  network.Send(Rank{2}, Rank{1}, Bytes(5));
  network.Send(Rank{3}, Rank{1}, Bytes(1));
  network.Send(Rank{2}, Rank{1}, Bytes(7));
  Agree({"", "", "", ""});
  EXPECT_EQ(statuses[1], Status::Ok());
  const std::vector<std::pair<Rank, Bytes>> wanted = {
      {Rank{2}, Bytes(5)}, {Rank{3}, Bytes(1)}, {Rank{2}, Bytes(7)}};
  EXPECT_EQ(verdicts[1].early, wanted);
}

TEST_F(LinkAgreementTest, ARankThatDoesNotTakePartIsNamed) {
  network.Send(Rank{2}, Rank{0}, Bytes(24));
  LinkVerdict verdict;
  const Status status = AgreeOnLink(links[0].get(), "", MonotonicNow() + kHardLimit, &verdict);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.message().find("rank 2 does not choose a network as the others do"), 0u);
}

TEST_F(LinkAgreementTest, ARankThatIsAbsentOrLostIsNamed) {
  LinkVerdict verdict;
  const Status late = AgreeOnLink(links[1].get(), "", MonotonicNow(), &verdict);
  EXPECT_EQ(late.message(), "rank 0 has not called init()");
  faults[1].losses = {{Rank{3}, "has died"}};
  const Status lost = AgreeOnLink(links[1].get(), "", MonotonicNow() + kHardLimit, &verdict);
  EXPECT_EQ(lost.message(), "rank 3 has died");
}

TEST_F(LinkAgreementTest, RankZeroStaysUntilItsWordsHaveGone) {
  faults[0].unsent = 3;
  Agree({"", "", "", ""});
  EXPECT_EQ(statuses[0], Status::Ok());
  EXPECT_EQ(faults[0].unsent, 0);
}

// Its last words are there: rank 0 leaves after the verdict that ends the job.
TEST_F(LinkAgreementTest, AVerdictCountsThoughItsSenderHasLeft) {
  LinkVerdict refused;
  for (int r = 1; r < kSize; ++r)
    EXPECT_FALSE(AgreeOnLink(links[r].get(), "none here", MonotonicNow(), &refused).ok());
  EXPECT_EQ(AgreeOnLink(links[0].get(), "", MonotonicNow() + kHardLimit, &refused), Status::Ok());
  faults[2].losses = {{Rank{0}, "has died"}};
  LinkVerdict verdict;
  EXPECT_EQ(AgreeOnLink(links[2].get(), "", MonotonicNow() + kHardLimit, &verdict), Status::Ok());
  EXPECT_EQ(verdict.hindered, Rank{1});
}

}  // namespace
}  // namespace covey
