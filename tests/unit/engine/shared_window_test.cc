// Goal: a look at a member's window gives a model of one moment, or the reason why not.
// Method: two members in one process, each event of its table; marks by their rule.
#include "core/engine/shared_window.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "ops/transports/inproc.h"

namespace covey {
namespace {

constexpr size_t kBytes = 64;

TEST(TrainerMarkTest, IsPackedAndFollowsTheOthersByOneExchange) {
  const TrainerMark mark =
      TrainerMark::Unpacked(TrainerMark{.version = 12, .exchanges = 7, .waits = true}.Packed());
  EXPECT_EQ(mark.version, 12);
  EXPECT_EQ(mark.exchanges, 3);
  EXPECT_TRUE(mark.waits);
  for (uint64_t ended = 0; ended < 9; ++ended) {
    const TrainerMark of = TrainerMark::Unpacked(TrainerMark{.exchanges = ended}.Packed());
    EXPECT_FALSE(of.IsBehind(ended)) << "it waits where this rank has not come yet";
    EXPECT_TRUE(of.IsBehind(ended + 1)) << "this rank has begun that exchange, or ended it";
    if (ended > 0) {
      EXPECT_FALSE(of.IsBehind(ended - 1)) << "it is one further";
    }
  }
}

class SharedWindowTest : public testing::Test {
 protected:
  SharedWindowTest() : network_({.size = 2}) {
    std::vector<uint64_t> offsets;
    for (int32_t i = 0; i < 2; ++i) {
      Transport& transport = network_.transport(Rank{i});
      groups_[i].members = {Rank{0}, Rank{1}};
      groups_[i].my_index = GroupIndex{i};
      model_[i] = transport.Base(Rank{i}) + transport.AllocShared(kBytes);
      offsets.push_back(transport.AllocShared(SharedWindow::BlockBytes(2)));
      windows_[i] = std::make_unique<SharedWindow>(
          SharedWindow::Options{.transport = &transport,
                                .group = &groups_[i],
                                .offset = offsets.back(),
                                .model = i == 0 ? model_[i] : nullptr,
                                .length_bytes = kBytes,
                                .version = 3});
    }
    for (const auto& window : windows_) window->Meet(offsets);
  }

  // The state in which rank 1, or `from`, sees the model of a member.
  WindowState See(int32_t member = 0, int32_t from = 1) {
    return windows_[from]->Look(member, seen_, &version_);
  }
  // Of a look at it alone.
  int64_t VersionOf(int32_t member) {
    int64_t version = -1;
    EXPECT_EQ(windows_[1]->Look(member, {}, &version), WindowState::kWhole);
    return version;
  }
  void Write(int value) { std::memset(model_[0], value, kBytes); }
  // The mean of both is exchanged where the model lies.
  void Exchange(bool has_mean) {
    for (const auto& window : windows_) window->Wait();
    for (const auto& window : windows_) window->EndWait(has_mean);
  }

  InprocNetwork network_;
  Group groups_[2];
  std::byte* model_[2];
  std::unique_ptr<SharedWindow> windows_[2];
  std::vector<std::byte> seen_ = std::vector<std::byte>(kBytes);
  int64_t version_ = -1;
};

TEST_F(SharedWindowTest, BeforeItsModelIsThereARankTellsItsVersionAlone) {
  EXPECT_EQ(See(), WindowState::kNothing);
  EXPECT_EQ(VersionOf(0), 3);
  windows_[0]->Begin();
  EXPECT_EQ(See(), WindowState::kNothing);
  windows_[0]->End(4);
  EXPECT_EQ(VersionOf(0), 4);
  windows_[0]->Show(4);
  EXPECT_EQ(See(), WindowState::kWhole);
}

TEST_F(SharedWindowTest, WithoutAModelItTellsTheVersionAlways) {
  windows_[1]->Show(3);
  windows_[1]->Begin();
  EXPECT_EQ(See(1, 0), WindowState::kNothing);
  windows_[1]->End(4);
  EXPECT_EQ(See(1, 0), WindowState::kNothing);
  EXPECT_EQ(version_, 4);
  EXPECT_EQ(VersionOf(1), 4);
}

TEST_F(SharedWindowTest, AModelIsNotSeenWhileItChanges) {
  windows_[0]->Show(3);
  windows_[0]->Begin();
  Write(1);
  EXPECT_EQ(See(), WindowState::kChanging);
  EXPECT_EQ(VersionOf(0), 3);
  windows_[0]->Begin();
  windows_[0]->End(4);
  EXPECT_EQ(See(), WindowState::kWhole);
  EXPECT_EQ(version_, 4);
  EXPECT_EQ(See(0, 0), WindowState::kWhole) << "at itself";
  EXPECT_EQ(seen_[kBytes - 1], std::byte{1});
}

TEST_F(SharedWindowTest, ARankThatWaitsIsSeenByThoseThatHaveNotComeAlone) {
  windows_[0]->Show(3);
  for (int round = 0; round < 5; ++round) {
    windows_[0]->Begin();
    windows_[0]->Wait();
    EXPECT_EQ(See(), WindowState::kWhole) << round;
    EXPECT_EQ(See(0, 0), WindowState::kChanging) << "it has begun itself";
    windows_[1]->Wait();
    EXPECT_EQ(See(), WindowState::kChanging) << "both have begun";
    EXPECT_EQ(VersionOf(0), 3);
    windows_[1]->EndWait(true);
    windows_[1]->End(3);
    EXPECT_EQ(See(), WindowState::kChanging) << "rank 1 is past it";
    windows_[0]->EndWait(true);
    EXPECT_EQ(See(), WindowState::kChanging) << "until the mean is loaded";
    windows_[0]->End(3);
    EXPECT_EQ(See(), WindowState::kWhole);
  }
}

TEST_F(SharedWindowTest, AnExchangeThatFailsIsNotCounted) {
  windows_[0]->Show(3);
  Exchange(false);
  EXPECT_EQ(See(), WindowState::kWhole);
  windows_[0]->EndWait(true);  // of none
  windows_[0]->Wait();
  EXPECT_EQ(See(), WindowState::kWhole) << "it waits again, in the same one";
}

TEST_F(SharedWindowTest, ARankWhoseModelIsElsewhereForAPartTellsItsVersionAlone) {
  windows_[0]->Show(3);
  windows_[0]->Tell(3, true);
  EXPECT_EQ(See(), WindowState::kWhole);
  windows_[0]->Tell(4, false);
  windows_[0]->Begin();
  windows_[0]->End(5);
  EXPECT_EQ(See(), WindowState::kChanging);
  EXPECT_EQ(VersionOf(0), 5);
  windows_[0]->Show(5);
  EXPECT_EQ(See(), WindowState::kWhole);
  windows_[0]->Tell(6, true);
  EXPECT_EQ(See(), WindowState::kWhole);
  EXPECT_EQ(version_, 6);
}

TEST_F(SharedWindowTest, WhatIsHiddenStaysSo) {
  windows_[0]->Show(3);
  windows_[0]->Begin();
  windows_[0]->Hide();
  windows_[0]->End(4);
  windows_[0]->Tell(5, true);
  EXPECT_EQ(See(), WindowState::kClosed);
  EXPECT_EQ(version_, 0);
  EXPECT_EQ(windows_[1]->Look(0, {}, &version_), WindowState::kClosed);
}

TEST_F(SharedWindowTest, ABlockGoesBackOnceAllHaveLeft) {
  windows_[0]->Leave();
  EXPECT_FALSE(windows_[0]->HaveAllLeft());
  EXPECT_EQ(See(), WindowState::kClosed);
  windows_[1]->Leave();
  EXPECT_TRUE(windows_[0]->HaveAllLeft());
  EXPECT_TRUE(windows_[1]->HaveAllLeft());
}

}  // namespace
}  // namespace covey
