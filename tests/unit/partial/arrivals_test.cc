// Goal: max_wait runs while a rank waits, and of the time in which it was stopped a part counts;
// what is waited for one that is slow for good counts together.
// Method: a member that has come, one that has not, and times as arguments.
#include "core/partial/arrivals.h"

#include <gtest/gtest.h>

#include "ops/transports/inproc.h"

namespace covey {
namespace {

class ArrivalsTest : public testing::Test {
 protected:
  ArrivalsTest()
      : network_({.size = 2, .seed = 1, .region_bytes = 1 << 20}),
        memory_({.size = 2, .log = 1}, RoundLayout(kSpans, 64)),
        words_(network_.transport(Rank{0}).words()),
        arrivals_({}, &memory_, words_) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < 2; ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
    }
    memory_.Map(std::move(blocks));
    words_->Store(memory_.SlotAt(0), SlotWord{SlotState::kPublished, 0, 1}.Word());
  }

  Arrivals::Answer FireAt(Time now) {
    return arrivals_.FireAt(1, {false, false}, {.step = 1, .max_wait = 100}, now);
  }

  static constexpr RoundSpan kSpans[1] = {{DType::kF32, 1}};
  InprocNetwork network_;
  RoundMemory memory_;
  SharedAtomics* words_;
  Arrivals arrivals_;
};

TEST_F(ArrivalsTest, FiresWithoutTheOtherOnceMaxWaitIsOver) {
  EXPECT_EQ(FireAt(1000).at, 1100);
  for (Time now : {1020, 1045, 1070, 1090}) EXPECT_EQ(FireAt(now).at, 1100);
  const Arrivals::Answer answer = FireAt(1100);
  EXPECT_LE(answer.at, 1100);
  EXPECT_TRUE(answer.expired);
}

TEST_F(ArrivalsTest, AWaiterThatWasStoppedItselfWaitsOn) {
  FireAt(1000);
  EXPECT_EQ(FireAt(9000).at, 9075);
  words_->Store(memory_.SlotAt(1), SlotWord{SlotState::kPublished, 0, 1}.Word());
  const Arrivals::Answer answer = FireAt(9001);
  EXPECT_LE(answer.at, 9001);
  EXPECT_FALSE(answer.expired);
}

TEST_F(ArrivalsTest, AWaiterInFinishGivesUpThoughNoMemberTrains) {
  words_->Store(memory_.SlotAt(0), SlotWord{SlotState::kOpen, 0, 1}.Word());
  words_->Store(memory_.MemberAt(0), 3);
  words_->Store(memory_.MemberAt(1), 1);
  const auto fire_at = [&](Time now) {
    const WaitingRank waiter{.step = 1, .finished = true, .times = 2, .max_wait = 100};
    return arrivals_.FireAt(1, {false, false}, waiter, now).at;
  };
  for (Time now : {1000, 1020, 1045, 1070, 1090}) EXPECT_EQ(fire_at(now), 1100);
  EXPECT_FALSE(arrivals_.over());
  EXPECT_EQ(fire_at(1100), kNever);
  EXPECT_TRUE(arrivals_.over());
}

TEST_F(ArrivalsTest, WhoIsOverdueIsNotWaitedFor) {
  words_->Store(memory_.SuspicionAt(1), Suspicion{0, 1}.Word());
  const Arrivals::Answer answer = FireAt(1000);
  EXPECT_LE(answer.at, 1000);
  EXPECT_FALSE(answer.expired);
}

TEST_F(ArrivalsTest, WhoIsOverdueAndWorksForItIsWaitedForAStepWhereTheRoundsMayEnd) {
  words_->Store(memory_.SuspicionAt(1), Suspicion{0, 1}.Word());
  for (const uint64_t ending : {0, 2, 1}) {
    Arrivals arrivals({.ending = ending}, &memory_, words_);
    arrivals.set_patience(30);
    const auto fire_at = [&](Time now) {
      return arrivals.FireAt(1, {false, false}, {.step = 1, .max_wait = 100}, now).at;
    };
    EXPECT_EQ(fire_at(1000), ending == 1 ? 1030 : 1000) << ending;
    EXPECT_EQ(fire_at(1010), ending == 1 ? 1030 : 1010) << ending;
    arrivals.set_patience(9000);
    if (ending == 1) {
      EXPECT_EQ(fire_at(1010), 1100);
    }
  }
  // Of who works for an earlier one, or has come, no more is to be expected.
  Arrivals arrivals({.ending = 1}, &memory_, words_);
  arrivals.set_patience(30);
  words_->Store(memory_.SlotAt(0), SlotWord{SlotState::kPublished, 0, 2}.Word());
  const WaitingRank waiter{.step = 2, .max_wait = 100};
  EXPECT_EQ(arrivals.FireAt(2, {false, false}, waiter, 1000).at, 1000);
  words_->Store(memory_.AppliedAt(1), 1);
  EXPECT_EQ(arrivals.FireAt(2, {false, false}, waiter, 1000).at, 1030);
  words_->Store(memory_.SlotAt(1), SlotWord{SlotState::kPublished, 0, 2}.Word());
  EXPECT_EQ(arrivals.FireAt(2, {false, false}, waiter, 1001).at, 1001);
}

TEST_F(ArrivalsTest, WhoHasNotComeItselfTakesNobodyForMissing) {
  EXPECT_EQ(arrivals_.FireAt(1, {false, false}, {.step = 0, .max_wait = 100}, 1000).at, kNever);
  EXPECT_EQ(arrivals_.FireAt(1, {false, false}, {.step = 0, .max_wait = 100}, 9000).at, kNever);
}

// Member 1 needs 60 for a step, member 0 nothing, and a version waits for who is 3 steps behind.
class LaggardTest : public ArrivalsTest {
 protected:
  LaggardTest() : limited_({.count = 1, .staleness = 2}, &memory_, words_) {
    for (int32_t r = 0; r < 2; ++r) words_->Store(memory_.AppliedAt(r), 1000);  // of the log
  }

  void PublishAt(int32_t rank, uint64_t step) {
    words_->Store(memory_.SlotAt(rank), SlotWord{SlotState::kPublished, 0, step}.Word());
  }
  // From `version` on; member 1 comes to its next step with each. The version that expires, or 0.
  uint64_t Expires(uint64_t version, uint64_t last) {
    for (; version <= last; ++version) {
      PublishAt(0, version);
      for (Time until = now_ + 60; now_ < until; now_ += 20) {
        const Arrivals::Answer answer =
            limited_.FireAt(version, {false, false}, {.step = version, .max_wait = 100}, now_);
        if (answer.at <= now_) return answer.expired ? version : 0;
      }
      PublishAt(1, version - 2);
    }
    return 0;
  }

  Arrivals limited_;
  Time now_ = 1000;
};

TEST_F(LaggardTest, WhoHoldsUpEachVersionIsWaitedForMaxWaitInAll) {
  PublishAt(1, 1);
  EXPECT_EQ(Expires(4, 50), 6u);  // Waiting is seen at looks: 40 for each before.
}

TEST_F(LaggardTest, WhoHasGainedOnTheLimitIsWaitedForAnew) {
  PublishAt(1, 1);
  EXPECT_EQ(Expires(4, 4), 0u);
  PublishAt(0, 5);
  PublishAt(1, 4);  // One better than it has to be at 5.
  EXPECT_LE(limited_.FireAt(5, {false, false}, {.step = 5, .max_wait = 100}, now_).at, now_);
  PublishAt(1, 3);
  EXPECT_EQ(Expires(6, 6), 0u);
  EXPECT_EQ(Expires(7, 50), 8u);
}

// Member 1 of models comes to every second version, which is of all, `late` after member 0, whose
// steps take 100. Waiting is seen at looks, 20 apart; max_wait is 200.
class SlowModelTest : public testing::Test {
 protected:
  SlowModelTest()
      : network_({.size = 2, .seed = 1, .region_bytes = 1 << 20}),
        memory_({.size = 2, .log = 1, .models = {.group_size = 1, .sync_every = 2}},
                RoundLayout(kSpans, 64)),
        words_(network_.transport(Rank{0}).words()),
        arrivals_({.count = 1}, &memory_, words_) {
    std::vector<std::byte*> blocks;
    for (int32_t r = 0; r < 2; ++r) {
      Transport& transport = network_.transport(Rank{r});
      blocks.push_back(transport.Base(Rank{r}) + transport.AllocShared(memory_.BlockBytes(r)));
    }
    memory_.Map(std::move(blocks));
  }

  void PublishAt(int32_t rank, uint64_t step) {
    words_->Store(memory_.SlotAt(rank), SlotWord{SlotState::kPublished, 0, step}.Word());
  }
  Arrivals::Answer Look(uint64_t version) {
    return arrivals_.FireAt(version, {false, false}, {.step = version, .max_wait = 200}, now_);
  }
  // The version of all that expires, of so many; 0: none.
  int Expires(int versions, Time late) {
    for (int i = 1; i <= versions; ++i) {
      PublishAt(0, version_ += 2);
      now_ += 2 * 100;
      for (const Time until = now_ + late; now_ < until; now_ += 20) {
        const Arrivals::Answer answer = Look(version_);
        if (answer.at <= now_) return answer.expired ? i : -1;
      }
      PublishAt(1, version_);
      const Arrivals::Answer answer = Look(version_);
      if (answer.at > now_ || answer.expired) return -1;
    }
    return 0;
  }

  static constexpr RoundSpan kSpans[1] = {{DType::kF32, 1}};
  InprocNetwork network_;
  RoundMemory memory_;
  SharedAtomics* words_;
  Arrivals arrivals_;
  uint64_t version_ = 0;
  Time now_ = 1000;
};

TEST_F(SlowModelTest, IsWaitedForMaxWaitInAll) {
  EXPECT_EQ(Expires(50, 100), 4);  // Each time 80 are seen, and a twelfth of 300 is forgiven.
}

TEST_F(SlowModelTest, IsWaitedForAlwaysWhenItIsALittleSlower) { EXPECT_EQ(Expires(500, 20), 0); }

TEST_F(SlowModelTest, IsWaitedForAnewWhenItHasComeFirst) {
  EXPECT_EQ(Expires(3, 100), 0);
  PublishAt(1, version_ + 2);
  EXPECT_EQ(Expires(1, 0), 0);
  EXPECT_EQ(Expires(50, 100), 4);
}

}  // namespace
}  // namespace covey
