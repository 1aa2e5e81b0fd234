// Goal: asks for snapshots go on for as long as a job runs: their number wraps around (Ask), and is
// compared so.
// Method: the word is set close below the wrap, then one rank asks and another gives, in turn.
#include "core/partial/snapshots.h"

#include <gtest/gtest.h>

#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr RoundSpan kSpans[1] = {{DType::kF32, 5}};
constexpr Time kOverdue = kSecond;

class Pair {
 public:
  Pair()
      : network_({.size = 2, .seed = 1, .region_bytes = 1 << 20}),
        memory_({.size = 2, .log = 1}, RoundLayout(kSpans, 64)) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < 2; ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
    }
    memory_.Map(std::move(blocks));
  }

  Snapshots Of(int32_t rank) {
    return {rank, kOverdue, &memory_, network_.transport(Rank{rank}).words(), &ScalarKernels()};
  }
  // As after so many asks that were all seen to.
  void SetAsks(uint64_t number) {
    *memory_.AskAt() = Ask{.number = number, .version = 1}.Word();
    *memory_.ClaimAt() = Claim{.number = number}.Word();
  }
  uint64_t asks() const { return Ask::Of(*memory_.AskAt()).number; }
  std::byte* Place() {
    Transport& transport = network_.transport(Rank{0});
    return transport.Base(Rank{0}) + transport.AllocShared(64);
  }

 private:
  InprocNetwork network_;
  RoundMemory memory_;
};

TEST(SnapshotsTest, AreGivenAfterAnyNumberOfAsks) {
  Pair pair;
  Snapshots donor = pair.Of(0), asker = pair.Of(1);
  const std::byte state[4] = {};
  pair.SetAsks(Ask::kNumbers - 3);
  for (uint64_t version = 10; version < 100; version += 10) {
    EXPECT_EQ(asker.Find(version, version).member, -1);
    ASSERT_TRUE(donor.IsAsked(version + 1, {false, false}, 0)) << "ask of version " << version;
    const Snapshots::Part part{state, sizeof(state)};
    donor.Give(version + 1, pair.Place(), {&part, 1});
    EXPECT_EQ(asker.Find(version, version).version, version + 1);
    EXPECT_FALSE(donor.IsAsked(version + 1, {false, false}, 0)) << "it has given";
  }
}

TEST(SnapshotsTest, AClaimOfAnOlderAskDoesNotStandInTheWayOfTheFirstAfterTheWrap) {
  Pair pair;
  Snapshots donor = pair.Of(0), asker = pair.Of(1);
  pair.SetAsks(Ask::kNumbers - 2);
  EXPECT_EQ(asker.Find(10, 10).member, -1);
  EXPECT_TRUE(donor.IsAsked(11, {false, false}, 0));
  EXPECT_FALSE(donor.IsAsked(11, {false, false}, 1)) << "it is at it";
  EXPECT_EQ(asker.Find(20, 20).member, -1);
  EXPECT_EQ(pair.asks(), 0u);
  EXPECT_TRUE(donor.IsAsked(21, {false, false}, 2));
}

}  // namespace
}  // namespace covey
