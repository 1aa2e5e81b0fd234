// The tables of pair_part.h: the stages of a step, and which follow one that has ended.
#include "core/train/pair_part.h"

#include <gtest/gtest.h>

#include <vector>

namespace covey {
namespace {

using Stages = std::vector<Stage>;

const Stages kStep{Stage::kCollectGradients, Stage::kUpdate, Stage::kTurn};
const Stages kFinish{Stage::kCollectModel, Stage::kMean, Stage::kLoadModel};

TEST(PairPartTest, TheFirstCallBeginsWithTheModelOfTheRank) {
  PairPart part(0, 5);
  const Stages begin{Stage::kCollectModel, Stage::kEnter};
  for (const auto& [stages, rest] :
       {std::pair{part.StepStages(), kStep}, std::pair{part.FinishStages(), kFinish}}) {
    ASSERT_EQ(stages.size(), begin.size() + rest.size());
    EXPECT_TRUE(std::equal(begin.begin(), begin.end(), stages.begin()));
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), stages.begin() + 2));
  }
  part.Follow(Stage::kEnter, Status::Ok(), {}, true);
  EXPECT_EQ(part.StepStages(), kStep);
  EXPECT_EQ(part.FinishStages(), kFinish);
}

TEST(PairPartTest, TheModelIsExchangedWhenLocalStepsAreOver) {
  PairPart part(0, kForever);
  StageResult result;
  EXPECT_EQ(part.Follow(Stage::kTurn, Status::Ok(), result, true), Stages{});
  result.is_due = true;
  EXPECT_EQ(part.Follow(Stage::kTurn, Status::Ok(), result, true),
            (Stages{Stage::kCollectModel, Stage::kPair, Stage::kLoadModel}));
}

TEST(PairPartTest, AFinishWithoutARankEndsWithItsOwnModelOrTheMeanThatIsSeen) {
  PairPart part(0, kForever);
  const Status late = Status::Timeout("rank 1 is missing"), lost = Status::Aborted("shutting down");
  EXPECT_EQ(part.Follow(Stage::kMean, Status::Ok(), {}, true), Stages{});
  EXPECT_EQ(part.Follow(Stage::kMean, late, {}, true), (Stages{Stage::kLoadModel, Stage::kMean}));
  EXPECT_EQ(part.Follow(Stage::kMean, late, {}, false),
            (Stages{Stage::kSeenMean, Stage::kLoadModel}));
  EXPECT_EQ(part.Follow(Stage::kMean, lost, {}, false), (Stages{Stage::kLoadModel, Stage::kMean}));
}

TEST(PairPartTest, ACheckpointMeetsAndKeepsEachModel) {
  PairPart part(0, kForever);
  EXPECT_EQ(part.BeginStages(), (Stages{Stage::kCollectModel, Stage::kEnter}));
  EXPECT_FALSE(part.has_begun());
  part.Follow(Stage::kEnter, Status::Ok(), {}, true);
  EXPECT_TRUE(part.has_begun());
  EXPECT_EQ(part.SettleStages(), (Stages{Stage::kCollectModel, Stage::kSettle, Stage::kLoadModel}));
  EXPECT_EQ(part.Follow(Stage::kSettle, Status::Ok(), {}, true), Stages{});
  EXPECT_EQ(part.Follow(Stage::kSettle, Status::Timeout("rank 1 is missing"), {}, true),
            (Stages{Stage::kLoadModel, Stage::kSettle}));
}

TEST(PairPartTest, ItsLastStepIsTheOneBeforeTheNextPart) {
  const PairPart part(3, 7), endless(0, kForever);
  EXPECT_FALSE(part.IsLast(5));
  EXPECT_TRUE(part.IsLast(6));
  EXPECT_FALSE(endless.IsLast(1000000));
}

}  // namespace
}  // namespace covey
