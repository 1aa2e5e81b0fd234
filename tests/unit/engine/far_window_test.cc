// Goal: a look at a member of another host gives its model of one moment, by a message, or says why
// not; none waits, and an answer that could be torn or old does not count.
// Method: two members in one process; messages are carried by hand, time is set.
#include "core/engine/far_window.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace covey {
namespace {

constexpr size_t kBytes = 64;

class SetClock final : public Clock {
 public:
  Time Now() override { return now; }
  Time now = 0;
};

class FarWindowTest : public testing::Test {
 protected:
  FarWindowTest() { Open(false); }

  // Rank 0 has a model, or copies one; rank 1 looks.
  void Open(bool copies) {
    for (int32_t i = 0; i < 2; ++i) {
      groups_[i].members = {Rank{0}, Rank{1}};
      groups_[i].my_index = GroupIndex{i};
      windows_[i] =
          std::make_unique<FarWindow>(FarWindow::Options{.group = &groups_[i],
                                                         .channel = 5,
                                                         .kick = [this] { ++kicks_; },
                                                         .clock = &clock_,
                                                         .model = i == 0 ? model_.data() : nullptr,
                                                         .is_copy = copies,
                                                         .length_bytes = kBytes,
                                                         .version = 3});
    }
  }
  // All messages on their way from a member to the other arrive.
  int Carry(int32_t from) {
    ChannelPort::Pass pass = windows_[from]->Advance(0, true);
    for (const EncodedMessage& message : pass.messages) {
      EXPECT_EQ(message.to, 1 - from);
      windows_[1 - from]->OnMessage(from, Slice(message.Whole()), 0);
    }
    return static_cast<int>(pass.messages.size());
  }
  WindowState See() { return windows_[1]->Look(0, seen_, &version_); }
  // A look, its question, the answer if there is one, and another look.
  WindowState AskAndSee() {
    const WindowState first = See();
    if (first != WindowState::kAsked) return first;
    Carry(1);
    Carry(0);
    return See();
  }
  WindowState SeePublished(int64_t part) {
    FarAnswer answer;
    const WindowState state = windows_[1]->LookAtPublished(0, part, seen_, &answer);
    step_ = answer.step;
    return state;
  }
  void Write(int value) { std::memset(model_.data(), value, kBytes); }
  bool HasSeen(int value) const {
    return seen_ == std::vector<std::byte>(kBytes, std::byte(value));
  }

  SetClock clock_;
  int kicks_ = 0;
  Group groups_[2];
  std::vector<std::byte> model_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<FarWindow> windows_[2];
  std::vector<std::byte> seen_ = std::vector<std::byte>(kBytes);
  int64_t version_ = -1;
  uint64_t step_ = 0;
};

TEST_F(FarWindowTest, ALookAsksOnceAndTheNextOneHasTheAnswer) {
  Write(7);
  windows_[0]->Show(4);
  EXPECT_EQ(See(), WindowState::kAsked);
  EXPECT_EQ(kicks_, 1) << "the question is to leave";
  EXPECT_EQ(See(), WindowState::kAsked);
  EXPECT_EQ(Carry(1), 1) << "one question at a time";
  EXPECT_EQ(Carry(0), 1);
  Write(8);
  EXPECT_EQ(See(), WindowState::kWhole);
  EXPECT_EQ(version_, 4);
  EXPECT_TRUE(HasSeen(7)) << "of the moment of the answer";
  EXPECT_EQ(AskAndSee(), WindowState::kWhole);
  EXPECT_TRUE(HasSeen(8)) << "no answer is shown twice";
}

TEST_F(FarWindowTest, ALookForTheVersionAloneIsAnsweredAtOnce) {
  windows_[0]->Show(4);
  windows_[0]->Begin();
  EXPECT_EQ(windows_[1]->Look(0, {}, &version_), WindowState::kAsked);
  Carry(1);
  Carry(0);
  EXPECT_NE(windows_[1]->Look(0, {}, &version_), WindowState::kAsked) << "it is being changed";
  EXPECT_EQ(version_, 4);
  EXPECT_EQ(windows_[0]->Look(1, {}, &version_), WindowState::kAsked);
  Carry(0);
  Carry(1);
  EXPECT_EQ(windows_[0]->Look(1, {}, &version_), WindowState::kWhole) << "it has no model";
  EXPECT_EQ(version_, 3);
}

TEST_F(FarWindowTest, WithoutAModelThereIsNothingToBeSeen) {
  EXPECT_EQ(windows_[0]->Look(1, seen_, &version_), WindowState::kAsked);
  Carry(0);
  Carry(1);
  EXPECT_EQ(windows_[0]->Look(1, seen_, &version_), WindowState::kNothing);
  EXPECT_EQ(version_, 3);
}

TEST_F(FarWindowTest, AModelThatIsBeingChangedIsSentOnceItHasChanged) {
  windows_[0]->Show(4);
  windows_[0]->Begin();
  EXPECT_EQ(AskAndSee(), WindowState::kAsked);
  Write(9);
  const int before = kicks_;
  windows_[0]->End(5);
  EXPECT_EQ(kicks_, before + 1) << "the answer is to leave";
  EXPECT_EQ(Carry(0), 1);
  EXPECT_EQ(See(), WindowState::kWhole);
  EXPECT_EQ(version_, 5);
  EXPECT_TRUE(HasSeen(9));
}

TEST_F(FarWindowTest, ACopyIsMadeForOneThatAsks) {
  Open(true);
  EXPECT_FALSE(windows_[0]->IsWanted());
  EXPECT_EQ(AskAndSee(), WindowState::kAsked);
  EXPECT_TRUE(windows_[0]->IsWanted());
  windows_[0]->ClearWanted();
  Write(6);
  windows_[0]->ShowCopy(4);
  windows_[0]->HideCopy();
  Write(0);
  Carry(0);
  EXPECT_EQ(See(), WindowState::kWhole) << "however soon it was hidden again";
  EXPECT_TRUE(HasSeen(6));
  EXPECT_FALSE(windows_[0]->IsWanted());
}

// train-T19.
TEST_F(FarWindowTest, ARankThatWaitsIsSeenByOneThatHasNotComeAndByNoOther) {
  windows_[0]->Show(4);
  Write(1);
  windows_[0]->Begin();
  windows_[0]->Wait();
  EXPECT_EQ(AskAndSee(), WindowState::kWhole) << "nothing is written before rank 1 has come";
  EXPECT_TRUE(HasSeen(1));
  windows_[1]->Wait();
  EXPECT_EQ(AskAndSee(), WindowState::kAsked);
  Write(2);
  windows_[0]->EndWait(true);
  EXPECT_EQ(Carry(0), 0);
  windows_[0]->End(5);
  Carry(0);
  EXPECT_EQ(See(), WindowState::kWhole);
  EXPECT_TRUE(HasSeen(2));
}

// train-T24: rank 1 gives up its look and comes to the exchange: the memory is written meanwhile.
TEST_F(FarWindowTest, AnAnswerFromBeforeAnExchangeIsNotTaken) {
  windows_[0]->Show(4);
  Write(1);
  windows_[0]->Begin();
  windows_[0]->Wait();
  EXPECT_EQ(See(), WindowState::kAsked);
  Carry(1);
  Carry(0);
  windows_[1]->Wait();
  EXPECT_EQ(See(), WindowState::kAsked);
  EXPECT_EQ(Carry(1), 1) << "it asks anew";
}

TEST_F(FarWindowTest, AnAnswerOfLongAgoIsNotTaken) {
  windows_[0]->Show(4);
  EXPECT_EQ(See(), WindowState::kAsked);
  Carry(1);
  Carry(0);
  clock_.now += FarWindow::kKept + 1;
  EXPECT_EQ(AskAndSee(), WindowState::kWhole);
  EXPECT_EQ(See(), WindowState::kAsked);
}

TEST_F(FarWindowTest, APublishedModelIsThatOfItsRounds) {
  uint64_t published = 0;
  EXPECT_EQ(SeePublished(2), WindowState::kAsked);
  Carry(1);
  EXPECT_EQ(Carry(0), 0) << "rank 0 has not opened these rounds yet";
  windows_[0]->AddRounds(2, [&](std::span<std::byte> model, uint64_t* step) {
    std::memset(model.data(), 5, model.size());
    *step = published;
    return Status::Ok();
  });
  Carry(0);
  EXPECT_EQ(SeePublished(2), WindowState::kNothing);
  published = 11;
  EXPECT_EQ(SeePublished(2), WindowState::kAsked);
  Carry(1);
  Carry(0);
  EXPECT_EQ(SeePublished(2), WindowState::kWhole);
  EXPECT_EQ(step_, 11);
  EXPECT_TRUE(HasSeen(5));
}

TEST_F(FarWindowTest, OneThatHidesIsClosedAndOneThatLeavesIsWaitedForNoMore) {
  windows_[0]->Show(4);
  windows_[0]->Begin();
  EXPECT_EQ(See(), WindowState::kAsked);
  Carry(1);
  windows_[0]->Hide();
  Carry(0);
  EXPECT_EQ(See(), WindowState::kClosed);
  EXPECT_FALSE(windows_[1]->HaveAllLeft());
  windows_[0]->Leave();
  EXPECT_FALSE(windows_[0]->HaveAllLeft()) << "its last words have not left";
  Carry(0);
  EXPECT_TRUE(windows_[1]->HaveAllLeft());
  EXPECT_EQ(See(), WindowState::kClosed);
  EXPECT_EQ(Carry(1), 0) << "it is not asked";
  windows_[1]->Leave();
  Carry(1);
  EXPECT_TRUE(windows_[0]->HaveAllLeft());
}

TEST_F(FarWindowTest, OneThatIsLostIsNotAsked) {
  EXPECT_EQ(See(), WindowState::kAsked);
  windows_[1]->OnLoss(0);
  EXPECT_EQ(See(), WindowState::kLost);
  EXPECT_TRUE(windows_[0]->Advance(0, true).messages.empty());
  EXPECT_TRUE(windows_[1]->HaveAllLeft() || Carry(1) == 1);
}

TEST_F(FarWindowTest, WhatWasNotAskedForIsNoAnswer) {
  windows_[0]->Show(4);
  const auto come = [&](FarLook look, size_t length) {
    Bytes bytes = look.Head();
    bytes.resize(bytes.size() + length);
    windows_[1]->OnMessage(0, Slice(std::move(bytes)), 0);
  };
  const FarQuestion question{.part = FarQuestion::kInPlace, .begun = 0, .wants_model = true};
  const FarLook whole{.kind = FarLook::Kind::kAnswer,
                      .question = question,
                      .answer = {.state = WindowState::kWhole, .version = 9}};
  come(whole, kBytes);
  EXPECT_EQ(See(), WindowState::kAsked) << "not asked";
  FarLook other = whole;
  other.question.begun = 1;
  come(other, kBytes);
  EXPECT_EQ(See(), WindowState::kAsked) << "another question";
  come(whole, kBytes - 1);
  EXPECT_EQ(See(), WindowState::kAsked) << "another length";
  windows_[1]->OnMessage(0, Slice(Bytes(3)), 0);
  EXPECT_EQ(See(), WindowState::kAsked) << "no message";
  come(whole, kBytes);
  EXPECT_EQ(See(), WindowState::kWhole);
  EXPECT_EQ(version_, 9);
}

}  // namespace
}  // namespace covey
