// A rank that leaves says which rank it had lost, so that another rank that has not noticed that
// loss yet names the rank that is at fault.
//
// Method: far peers over links in memory, whose losses the test decides.
#include "core/transport/far_peers.h"

#include <gtest/gtest.h>

#include "tests/unit/transport/memory_links.h"

namespace covey {
namespace {

constexpr int32_t kRanks = 4;
constexpr uint64_t kArenaBytes = uint64_t{1} << 16;

class FarPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t r = 0; r < kRanks; ++r)
      peers_.push_back(
          std::make_unique<FarPeers>(std::make_unique<MemoryLink>(&network_, Rank{r}, &faults_[r]),
                                     FarPeers::Options{.arena_bytes = kArenaBytes}));
    for (int32_t r = 0; r < kRanks; ++r) {
      std::vector<Rank> others;
      for (int32_t other = 0; other < kRanks; ++other)
        if (other != r) others.push_back(Rank{other});
      ASSERT_TRUE(peers_[static_cast<size_t>(r)]->Greet(region_.data(), Rank{r}, others).ok());
    }
    for (auto& peers : peers_) peers->Pump();
  }

  // The loss of a rank as another hears of it; empty: none.
  std::string Told(int32_t rank, int32_t of) {
    peers_[static_cast<size_t>(rank)]->Pump();
    for (const PeerLoss& loss : peers_[static_cast<size_t>(rank)]->PollLost())
      if (loss.rank == Rank{of}) return loss.how;
    return "";
  }

  MemoryNetwork network_{kRanks};
  Faults faults_[kRanks];
  std::vector<std::byte> region_ = std::vector<std::byte>(64);
  std::vector<std::unique_ptr<FarPeers>> peers_;
};

TEST_F(FarPeersTest, TheRankThatWasLostIsNamedByThoseThatLeaveForIt) {
  faults_[0].losses = {{Rank{2}, "could not be reached"}};
  EXPECT_EQ(Told(0, 2), "could not be reached");
  peers_[0]->SayGoodbye();
  EXPECT_EQ(Told(1, 0), "has left the job after it had lost rank 2");
  // And by those that leave for the one that has left.
  peers_[1]->SayGoodbye();
  EXPECT_EQ(Told(3, 1), "has left the job after it had lost rank 2");
}

TEST_F(FarPeersTest, ARankThatLeavesByItselfNamesNone) {
  peers_[2]->SayGoodbye();
  EXPECT_EQ(Told(1, 2), "has left the job (it called shutdown or its program ended)");
  // A leave is not the reason of another's.
  peers_[1]->SayGoodbye();
  EXPECT_EQ(Told(0, 1), "has left the job (it called shutdown or its program ended)");
}

// A rank is not told that it was itself lost by the rank that leaves.
TEST_F(FarPeersTest, ARankDoesNotPassOnItsOwnLoss) {
  faults_[0].losses = {{Rank{1}, "could not be reached"}};
  EXPECT_EQ(Told(0, 1), "could not be reached");
  peers_[0]->SayGoodbye();
  EXPECT_EQ(Told(3, 0), "has left the job after it had lost rank 1");
  peers_[3]->SayGoodbye();
  EXPECT_EQ(Told(1, 3), "has left the job after it had lost rank 1");
  peers_[1]->SayGoodbye();
  EXPECT_EQ(Told(2, 1), "has left the job (it called shutdown or its program ended)");
}

}  // namespace
}  // namespace covey
