// Goal: when all come, a version is the sum of all in rank order, bit for bit, as an allreduce has
// it (T11), and every rank reads that, for any number of ranks; nobody takes it that there is no
// one to give a snapshot before it has seen all others in the same need twice (partial-W10);
// finish() that ends without a rank settles the last version until one of the others trains on
// (partial-W8); a rank that looks for a snapshot fires no version (partial-W10a). Method: ranks in
// turn on one thread: all publish, one makes the version, all read.
#include "core/partial/rounds.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "core/base/rng.h"
#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr RoundSpan kSpans[1] = {{DType::kF32, 5}};

class Ranks {
 public:
  explicit Ranks(int32_t size, Time max_wait = kNever)
      : network_({.size = size, .seed = 1, .region_bytes = 1 << 20}),
        memory_({.size = size, .log = 1}, RoundLayout(kSpans, 64)) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < size; ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
    }
    memory_.Map(std::move(blocks));
    for (int32_t r = 0; r < size; ++r)
      ranks_.push_back(std::make_unique<Rounds>(
          Rounds::Options{.self = r, .max_wait = max_wait, .kernels = &ScalarKernels()}, &memory_,
          network_.transport(Rank{r}).words()));
  }

  Rounds& operator[](int32_t rank) { return *ranks_[static_cast<size_t>(rank)]; }
  // Memory of `rank` that the others see.
  std::byte* Place(int32_t rank) {
    Transport& transport = network_.transport(Rank{rank});
    return transport.Base(Rank{rank}) + transport.AllocShared(64);
  }

 private:
  InprocNetwork network_;
  RoundMemory memory_;
  std::vector<std::unique_ptr<Rounds>> ranks_;
};

TEST(RoundsTest, WhenAllComeAVersionIsTheSumInRankOrder) {
  Rng rng(kSeed);
  for (int32_t size = 1; size <= 64; ++size) {
    Ranks ranks(size);
    for (uint64_t version = 1; version <= 6; ++version) {
      float sum[5] = {};
      for (int32_t r = 0; r < size; ++r) {
        auto* gradient = reinterpret_cast<float*>(ranks[r].open());
        for (int i = 0; i < 5; ++i) {
          gradient[i] = static_cast<float>(rng.Below(1 << 20)) / 3.0f;
          sum[i] = r == 0 ? gradient[i] : sum[i] + gradient[i];
        }
        ASSERT_EQ(ranks[r].Publish({}), version);
        bool moved;
        if (r + 1 < size) ranks[r].Advance(0, &moved);
        ASSERT_EQ(ranks[0].executed(), version - 1) << "before all have come";
      }
      Rounds& one = ranks[static_cast<int32_t>(rng.Below(static_cast<uint64_t>(size)))];
      for (bool moved = true; one.executed() < version && moved;) one.Advance(0, &moved);
      for (int32_t r = 0; r < size; ++r) {
        float result[5];
        void* to[] = {result};
        RoundRecord record;
        ASSERT_EQ(ranks[r].Read(version, to, &record), Found::kYes) << size;
        EXPECT_EQ(record.header.divisor, size);
        for (int i = 0; i < 5; ++i) EXPECT_EQ(result[i], sum[i]) << size << " ranks";
      }
    }
  }
}

TEST(RoundsTest, NoVersionFollowsTheLast) {
  Ranks ranks(2);
  for (int32_t r = 0; r < 2; ++r) ranks[r].EndWith(1);
  for (uint64_t step = 1; step <= 2; ++step) {
    for (int32_t r = 0; r < 2; ++r) EXPECT_EQ(ranks[r].Publish({}), step);
    for (bool moved = true; moved;) ranks[0].Advance(0, &moved);
    EXPECT_EQ(ranks[1].executed(), 1u);
  }
  EXPECT_NE(ranks[0].Retract(), nullptr) << "the second contribution is in no version";
}

TEST(RoundsTest, NobodyIsLeftToGiveASnapshotOnlyWhenTwoLooksFindTheSameNeed) {
  Ranks ranks(3);
  const auto needs_one = [&](int32_t rank) { ranks[rank].snapshots().Find(0, 10); };
  EXPECT_TRUE(ranks[0].epoch_end().FindDonors().any) << "two that need none";
  needs_one(1);
  EXPECT_TRUE(ranks[0].epoch_end().FindDonors().any) << "one of them";
  needs_one(2);
  EXPECT_TRUE(ranks[0].epoch_end().FindDonors().any)
      << "they may have come to it one after the other";
  EXPECT_FALSE(ranks[0].epoch_end().FindDonors().any) << "nothing has changed between two looks";
  // In need all the time, by the looks; not so in between.
  ranks[2].snapshots().Give(10, ranks.Place(2), {});
  needs_one(1);
  ranks[2].snapshots().Retract();
  needs_one(1);
  EXPECT_TRUE(ranks[0].epoch_end().FindDonors().any) << "it had found one, and needs another";
  EXPECT_FALSE(ranks[0].epoch_end().FindDonors().any);
}

constexpr Time kMaxWait = 10 * kMillisecond;

// Ranks 0 and 1 of 3 have published a step and wait in finish() for as long as they do.
class EndingTest : public testing::Test {
 protected:
  EndingTest() {
    for (const int32_t rank : {0, 1}) {
      ranks_[rank].Publish({});
      ranks_[rank].epoch_end().Finish();
    }
    for (const int32_t rank : {0, 1})
      Work(rank, [&] { return ranks_[rank].epoch_end().HasGivenUp(); });
  }

  // For 10 times max_wait at most.
  void Work(int32_t rank, const std::function<bool()>& is_done) {
    bool moved;
    for (int i = 0; i < 100 && !is_done(); ++i, now_ += kMaxWait / 10) {
      ranks_[rank].Advance(now_, &moved);
      while (moved && !is_done()) ranks_[rank].Advance(now_, &moved);
    }
    EXPECT_TRUE(is_done()) << "rank " << rank;
  }

  Ranks ranks_{3, kMaxWait};
  Time now_ = 0;
};

TEST_F(EndingTest, WhoComesLaterEndsWithTheSameVersion) {
  ASSERT_TRUE(ranks_[0].epoch_end().GoOnWithout());
  const uint64_t last = ranks_[0].executed();
  Rounds& late = ranks_[2];
  EXPECT_EQ(late.Publish({}), last + 1);
  EXPECT_EQ(late.step(), 0u) << "it has published nothing";
  EXPECT_FALSE(late.epoch_end().IsLeftBehind()) << "they may train on";
  Work(2, [&] { return late.epoch_end().IsLeftBehind(); });
  late.Publish({});
  EXPECT_TRUE(late.epoch_end().IsLeftBehind()) << "it waits for max_wait once, not with each step";
  late.epoch_end().Finish();
  Work(2, [&] { return late.epoch_end().IsFlushed(); });
  EXPECT_EQ(late.executed(), last);
  EXPECT_EQ(late.epoch_end().dropped(), 2u);
}

TEST_F(EndingTest, WhoTrainsOnIsInVersionsThoughAnotherHasFinishedAgain) {
  ASSERT_TRUE(ranks_[0].epoch_end().GoOnWithout());
  ranks_[0].Publish({});
  ranks_[0].epoch_end().Finish();
  ASSERT_TRUE(ranks_[1].epoch_end().GoOnWithout());
  const uint64_t step = ranks_[1].Publish({});
  EXPECT_EQ(ranks_[1].step(), step);
  Work(1, [&] { return ranks_[1].executed() >= step; });
}

// It has not looked whether all have finished since the others have gone on.
TEST_F(EndingTest, WhoGoesOnDropsWhatTheSettledVersionLacks) {
  Rounds& late = ranks_[2];
  late.Publish({});
  ASSERT_TRUE(ranks_[0].epoch_end().GoOnWithout());
  late.epoch_end().Finish();
  Work(2, [&] { return late.epoch_end().HasGivenUp(); });
  ASSERT_TRUE(late.epoch_end().GoOnWithout());
  EXPECT_EQ(late.epoch_end().dropped(), 1u);
  EXPECT_EQ(late.epoch_end().settled(), ranks_[0].executed());
  EXPECT_EQ(late.Retract(), nullptr);
}

TEST_F(EndingTest, WhoLooksForASnapshotFiresNoVersion) {
  Rounds &donor = ranks_[0], &other = ranks_[1];
  const uint64_t step = donor.Publish({}), before = donor.executed();
  const auto advance = [&] {
    bool moved;
    for (const Time end = now_ + 3 * kMaxWait; now_ < end; now_ += kMaxWait / 10)
      other.Advance(now_, &moved);
  };
  other.snapshots().Find(before, before + 2);
  advance();
  EXPECT_EQ(other.executed(), before);
  const Snapshots::Part part{donor.open(), 20};
  donor.snapshots().Give(before + 2, ranks_.Place(0), {&part, 1});
  EXPECT_EQ(other.snapshots().Find(before, before + 2).member, 0);
  advance();
  EXPECT_EQ(other.executed(), step) << "it has found one";
}

}  // namespace
}  // namespace covey
