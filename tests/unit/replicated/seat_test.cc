// A seat that leaves stays until those that it hears of have what it knows, and no longer; what
// only ranks know that have left is decided by nobody again, and who lacks it is told.
//
// Method: seats with links between them that hold what the test holds back; a letter is read when
// the test says so. Whole numbers, so that a sum says what went into it.
#include "core/replicated/seat.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace covey {
namespace {

constexpr Time kGrace = kSecond;
constexpr Time kTick = kGrace / 10;
constexpr Time kLatest = 3600 * kSecond;
constexpr uint64_t kSteps = 5;

class SeatTest : public testing::Test {
 protected:
  // All are waited for, so versions are steps; who is silent for 2 ticks, once.
  void Open(int32_t size, int32_t log = 100) {
    const RoundSpan spans[] = {{DType::kI64, 1}};
    layout_ = std::make_unique<RoundLayout>(spans, 64);
    for (int32_t r = 0; r < size; ++r)
      seats_.push_back(std::make_unique<Seat>(Seat::Options{.self = r,
                                                            .admission = {},
                                                            .max_wait = 2 * kTick,
                                                            .engine_grace = kGrace,
                                                            .kernels = &ScalarKernels()},
                                              RoundMemory::Shape{.size = size, .log = log},
                                              *layout_));
    runs_.assign(seats_.size(), true);
  }

  Seat& seat(int32_t rank) { return *seats_[static_cast<size_t>(rank)]; }
  void Stop(int32_t rank) { runs_[static_cast<size_t>(rank)] = false; }
  void GoOn(int32_t rank) { runs_[static_cast<size_t>(rank)] = true; }

  void Publish(int32_t rank) {
    const int64_t one = 1;
    std::memcpy(seat(rank).open(), &one, sizeof(one));
    seat(rank).Publish({});
  }

  // Everybody who runs reads up to `most` letters of each other one, and has a look; what was
  // written before a rank was stopped goes its way.
  void Tick(size_t most = 100) {
    now_ += kTick;
    const auto size = static_cast<int32_t>(seats_.size());
    for (int32_t to = 0; to < size; ++to) {
      if (!runs_[static_cast<size_t>(to)]) continue;
      for (int32_t from = 0; from < size; ++from) {
        std::deque<Bytes>& link = links_[{from, to}];
        for (size_t n = 0; n < most && !link.empty(); ++n) {
          const Bytes bytes = std::move(link.front());
          link.pop_front();
          seat(to).OnLetter(from, bytes, now_);
        }
      }
      seat(to).Advance(now_);
      for (Sealed& post : seat(to).TakePosts())
        links_[{to, post.to}].push_back(std::move(post.bytes));
    }
  }
  void Ticks(int count) {
    for (int i = 0; i < count; ++i) Tick();
  }

  // Versions that all of `ranks` know as decided.
  void TrainTo(uint64_t version, const std::vector<int32_t>& ranks) {
    for (int turns = 0; turns < 1000; ++turns) {
      bool all = true;
      for (const int32_t rank : ranks) {
        const uint64_t executed = seat(rank).executed();
        all &= executed >= version;
        if (executed >= seat(rank).step() && executed < version) Publish(rank);
      }
      if (all) return;
      Tick();
    }
    FAIL() << "version " << version << " is not decided";
  }

  // All have published, and the leader has written to the others, who have not read it.
  void Propose() {
    for (const int32_t rank : {0, 1, 2}) Publish(rank);
    Tick();
    Stop(1);
    Stop(2);
    Tick();
    ASSERT_TRUE(seat(0).ledger().undecided().has_value());
  }

  void Leave(int32_t rank, Time latest = kLatest) {
    seat(rank).Leave();
    seat(rank).Depart(now_ + latest);
  }

  // The others leave while it is stopped; when it goes on, it finds the last letter of each.
  void LeaveBehind(int32_t rank) {
    const auto size = static_cast<int32_t>(seats_.size());
    for (int32_t other = 0; other < size; ++other)
      if (other != rank) Leave(other);
    Ticks(80);
    for (auto& [pair, link] : links_)
      if (pair.second == rank) link.erase(link.begin(), link.end() - (link.empty() ? 0 : 1));
    GoOn(rank);
    Ticks(100);
  }

  Time now_ = kSecond;
  std::unique_ptr<RoundLayout> layout_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<bool> runs_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Bytes>> links_;
};

// Longer than any patience: it reads one letter of each now and then.
TEST_F(SeatTest, WhoLeavesStaysUntilWhoIsSlowHasAll) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(2 + kSteps, {0, 1});
  GoOn(2);
  Leave(0);
  Leave(1);
  for (int ticks = 0; ticks < 400 && !seat(0).has_parted(); ++ticks) {
    GoOn(2);
    if (ticks % 8 != 0) Stop(2);  // less than engine_grace
    Tick(1);
    EXPECT_TRUE(!seat(0).has_parted() || seat(2).executed() == 2 + kSteps);
  }
  EXPECT_TRUE(seat(0).has_parted());
  GoOn(2);
  Ticks(10);
  EXPECT_TRUE(seat(1).has_parted());
  EXPECT_EQ(seat(2).executed(), 2 + kSteps);
  EXPECT_EQ(seat(2).Lacking().last, 0u);
  TrainTo(3 + kSteps, {2});  // alone
}

TEST_F(SeatTest, WhoIsSilentIsNotWaitedFor) {
  Open(3);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(1 + kSteps, {0, 1});
  Leave(0);
  Leave(1);
  Ticks(80);
  EXPECT_TRUE(seat(0).has_parted() && seat(1).has_parted());
}

TEST_F(SeatTest, SomeTimeItLeavesInAnyCase) {
  Open(3);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(1 + kSteps, {0, 1});
  Leave(0, 5 * kTick);
  Ticks(6);
  EXPECT_TRUE(seat(0).has_parted());
}

// One that was stopped itself has not listened: what it has not read is not silence.
TEST_F(SeatTest, WhoHasNotListenedWaitsAnew) {
  Open(3);
  TrainTo(1, {0, 1, 2});
  Stop(2);
  TrainTo(1 + kSteps, {0, 1});
  Ticks(20);
  Stop(0);
  GoOn(2);
  now_ += 20 * kGrace;
  Leave(0);
  GoOn(0);
  Tick(0);
  EXPECT_FALSE(seat(0).has_parted());
}

// Who asks to lead and is behind cannot, and ends the reign of who could tell it all.
TEST_F(SeatTest, WhoKnowsMoreThanTheLeaderStays) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(2 + kSteps, {0, 1});
  Stop(0);
  Stop(1);
  for (auto& [pair, link] : links_)
    if (pair.second == 2 && !link.empty()) link.resize(1);  // the rest is late
  std::map<std::pair<int32_t, int32_t>, std::deque<Bytes>> late;
  GoOn(2);
  while (seat(2).attempt() == 1) Tick();
  GoOn(0);
  GoOn(1);
  Leave(0);
  Leave(1);
  Ticks(100);
  EXPECT_EQ(seat(2).executed(), 2 + kSteps);
  EXPECT_EQ(seat(2).Lacking().last, 0u);
  EXPECT_TRUE(seat(0).has_parted() && seat(1).has_parted());
}

// Nobody decides other versions in their place, however long; and it has not finished.
TEST_F(SeatTest, WhatOthersHaveTakenAlongIsLacking) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  Publish(2);
  TrainTo(2 + kSteps, {0, 1});
  Leave(0);
  Leave(1);
  Ticks(80);
  ASSERT_TRUE(seat(0).has_parted() && seat(1).has_parted());
  // All that lies before it is the last letter of each.
  for (auto& [pair, link] : links_)
    if (pair.second == 2) link.erase(link.begin(), link.end() - (link.empty() ? 0 : 1));
  GoOn(2);
  seat(2).Finish();
  Ticks(100);
  EXPECT_TRUE(seat(2).leads());
  EXPECT_LE(seat(2).executed(), 3u);
  EXPECT_EQ(seat(2).fired(), 0u);
  EXPECT_FALSE(seat(2).IsFlushed());
  EXPECT_EQ(seat(2).Lacking().first, seat(2).executed() + 1);
  EXPECT_EQ(seat(2).Lacking().last, 2 + kSteps);
  EXPECT_EQ(seat(2).Lacking().gone, (std::vector<int32_t>{0, 1}));
  Leave(2);
  Ticks(20);
  EXPECT_TRUE(seat(2).has_parted());
}

// The leader proposes a version that nobody else hears of, and the others decide another one.
TEST_F(SeatTest, WhatItKeepsIsNotWhatTheyTookAlong) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Propose();
  links_[{0, 1}].clear();
  links_[{0, 2}].clear();
  Stop(0);
  GoOn(1);
  GoOn(2);
  TrainTo(3, {1, 2});
  LeaveBehind(0);
  EXPECT_TRUE(seat(0).leads());
  EXPECT_EQ(seat(0).executed(), 2u);
  EXPECT_EQ(seat(0).Lacking().first, 3u);
  EXPECT_EQ(seat(0).Lacking().last, 3u);
}

TEST_F(SeatTest, WhatItKeepsIsWhatTheyTookAlong) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  Propose();
  Stop(0);
  GoOn(1);
  GoOn(2);
  Tick();
  ASSERT_TRUE(seat(2).ledger().undecided().has_value());
  Stop(2);
  GoOn(0);
  TrainTo(3, {0, 1});
  LeaveBehind(2);
  EXPECT_EQ(seat(2).executed(), 3u);
  EXPECT_EQ(seat(2).Lacking().last, 0u);
}

// Two that are both behind: the one that leads knows of it from one that has left, the other from
// the one that leads.
TEST_F(SeatTest, WhoFollowsOneThatIsCutOffIsToldToo) {
  Open(5);
  TrainTo(2, {0, 1, 2, 3, 4});
  Stop(3);
  Stop(4);
  TrainTo(2 + kSteps, {0, 1, 2});
  for (const int32_t rank : {0, 1, 2}) Leave(rank);
  Ticks(80);
  for (auto& [pair, link] : links_) {
    if (pair.second < 3) continue;
    link.erase(link.begin(), link.end() - (link.empty() ? 0 : 1));
    if (pair.second == 4) link.clear();  // it hears of deaths only
  }
  for (const int32_t rank : {0, 1, 2}) seat(4).OnLoss(rank);
  GoOn(3);
  GoOn(4);
  Ticks(100);
  for (const int32_t rank : {3, 4}) {
    EXPECT_EQ(seat(rank).executed(), 2u) << rank;
    EXPECT_EQ(seat(rank).Lacking().last, 2 + kSteps) << rank;
  }
}

// It has nothing of its own that would keep it from finishing.
TEST_F(SeatTest, WhoLacksVersionsHasNotFinished) {
  Open(2);
  TrainTo(2, {0, 1});
  Stop(1);
  TrainTo(2 + kSteps, {0});
  Leave(0);
  Ticks(80);
  links_[{0, 1}].erase(links_[{0, 1}].begin(), links_[{0, 1}].end() - 1);
  GoOn(1);
  seat(1).Finish();
  for (int ticks = 0; ticks < 100; ++ticks) {
    Tick();
    ASSERT_FALSE(seat(1).IsFlushed());
  }
  EXPECT_EQ(seat(1).Lacking().first, 3u);
}

// A loss comes on a way of its own: whoever was counted last may be known to be dead before the
// version is known.
TEST_F(SeatTest, ALossEndsNoFinishBeforeTheLeaderKnowsOfIt) {
  Open(3);
  TrainTo(2, {0, 1, 2});
  seat(0).Finish();
  seat(1).Finish();
  Ticks(5);
  Publish(2);
  seat(2).Finish();
  Stop(1);
  Ticks(5);
  ASSERT_EQ(seat(2).executed(), 3u);
  ASSERT_EQ(seat(1).executed(), 2u);
  Stop(2);
  seat(0).OnLoss(2);
  seat(1).OnLoss(2);
  EXPECT_FALSE(seat(1).IsFlushed());
  GoOn(1);
  Ticks(5);
  EXPECT_EQ(seat(1).executed(), 3u);
  EXPECT_TRUE(seat(1).IsFlushed() && seat(0).IsFlushed());
}

// What it needs nobody has applied yet, nor has to, as far as versions go: the last is one further.
TEST_F(SeatTest, WhoNeedsASnapshotIsSeenByThoseThatWait) {
  Open(3, 4);
  TrainTo(2, {0, 1, 2});
  Stop(2);
  TrainTo(2 + 4 * kSteps, {0, 1});
  for (const int32_t rank : {0, 1}) {
    EXPECT_EQ(seat(rank).Read(seat(rank).executed() - 1, {}, nullptr), Found::kYes);
    seat(rank).Finish();
  }
  Ticks(5);
  EXPECT_FALSE(seat(0).IsAnyInNeed() || seat(1).IsAnyInNeed());
  GoOn(2);
  Ticks(5);
  Seat::Gift gift;
  ASSERT_EQ(seat(2).Read(3, {}, nullptr), Found::kGone);
  const size_t longest = seat(2).LongestLetterBytes();
  ASSERT_FALSE(seat(2).Seek(&gift));
  EXPECT_EQ(seat(2).LongestLetterBytes(),
            longest + 64 * layout_->length_bytes() + (size_t{4} << 30));
  Ticks(5);
  const uint64_t last = seat(0).executed();
  ASSERT_EQ(seat(2).executed(), last);
  for (const int32_t rank : {0, 1}) {
    EXPECT_FALSE(seat(rank).IsAsked(last - 1, now_));
    EXPECT_TRUE(seat(rank).IsAnyInNeed());
    EXPECT_EQ(seat(rank).Read(last, {}, nullptr), Found::kYes);
  }
  Ticks(5);
  for (const int32_t rank : {0, 1}) seat(rank).Give(last, Bytes(8));
  Ticks(5);
  ASSERT_TRUE(seat(2).Seek(&gift));
  EXPECT_EQ(gift.version, last);
  EXPECT_EQ(seat(2).LongestLetterBytes(), longest);
  Ticks(5);
  EXPECT_FALSE(seat(0).IsAnyInNeed() || seat(1).IsAnyInNeed());
}

// With nobody else left it goes on alone, if it has all.
TEST_F(SeatTest, WhoHasAllGoesOn) {
  Open(3);
  TrainTo(kSteps, {0, 1, 2});
  Leave(0);
  Leave(1);
  Ticks(80);
  ASSERT_TRUE(seat(0).has_parted() && seat(1).has_parted());
  TrainTo(2 * kSteps, {2});
  seat(2).Finish();
  Ticks(20);
  EXPECT_TRUE(seat(2).IsFlushed());
}

}  // namespace
}  // namespace covey
