// The tables of round_part.h: the stages of a step, and which follow one that has ended.
#include "core/train/round_part.h"

#include <gtest/gtest.h>

#include <vector>

namespace covey {
namespace {

using Stages = std::vector<Stage>;

RoundPart PartOf(Payload payload, int64_t steps, int64_t until = kForever) {
  MethodPlan plan{.payload = payload, .admission = Admission::kRounds};
  plan.rounds.local_steps = steps;
  return {plan, 0, until, 0, 0};
}

// One update, and how it goes on to the end of the step.
void Update(RoundPart* part) { EXPECT_EQ(part->OnDone(Stage::kUpdate), Stages{}); }

StageResult MergedWith(uint64_t version, bool is_overdue) {
  StageResult result;
  result.version = result.own_step = result.executed = version;
  result.is_overdue = result.misses = is_overdue;
  return result;
}

bool Publishes(const RoundPart& part, Time now = 0) {
  const Stages stages = part.StepStages(now);
  return std::find(stages.begin(), stages.end(), Stage::kPublish) != stages.end();
}

// Publishes as `step`, and merges with that version.
void Exchange(RoundPart* part, uint64_t step, bool is_overdue) {
  StageResult published;
  published.version = step;
  part->Follow(Stage::kPublish, Status::Ok(), published);
  part->Follow(Stage::kMerge, Status::Ok(), MergedWith(step, is_overdue));
}

TEST(RoundPartTest, TheFirstStepOfARankAloneBeginsWithItsModel) {
  for (const Payload payload : {Payload::kDelta, Payload::kModel}) {
    RoundPart part = PartOf(payload, 2);
    const Stage begin = payload == Payload::kModel ? Stage::kBegin : Stage::kAnchor;
    EXPECT_EQ(part.StepStages(0), (Stages{Stage::kCollectModel, begin, Stage::kCollectGradients,
                                          Stage::kUpdate, Stage::kServe}));
    part.Follow(begin, Status::Ok(), {});
    Update(&part);
    EXPECT_TRUE(Publishes(part));
    EXPECT_EQ(part.StepStages(0).front(), Stage::kCollectGradients);
  }
}

TEST(RoundPartTest, ARestoredRankOfModelsBeginsAnew) {
  for (const Payload payload : {Payload::kDelta, Payload::kModel}) {
    RoundPart part = PartOf(payload, 3), loaded = PartOf(payload, 3);
    part.Follow(payload == Payload::kModel ? Stage::kBegin : Stage::kAnchor, Status::Ok(), {});
    Update(&part);
    loaded.Restore(part.local(), part.is_anchored());
    EXPECT_EQ(loaded.local(), 1);
    EXPECT_EQ(loaded.StepStages(0).front(),
              payload == Payload::kModel ? Stage::kCollectModel : Stage::kCollectGradients);
  }
}

TEST(RoundPartTest, TheLastStepBeforeAnotherPartIsExchanged) {
  RoundPart part = PartOf(Payload::kModel, 3, 4);
  std::vector<bool> published;
  for (uint64_t step = 0, version = 0; step < 4; ++step) {
    published.push_back(Publishes(part));
    Update(&part);
    if (published.back()) Exchange(&part, ++version, false);
  }
  EXPECT_EQ(published, (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(part.reached(), 4);
  EXPECT_TRUE(part.IsOver());
}

TEST(RoundPartTest, AnOverdueRankComesEarlyUntilItIsWaitedForAgain) {
  RoundPart part = PartOf(Payload::kModel, 4);
  Update(&part);
  Exchange(&part, 1, true);
  EXPECT_FALSE(Publishes(part));
  StageResult looked;
  looked.executed = 2;  // what it works for was made without it
  part.Follow(Stage::kServe, Status::Ok(), looked);
  EXPECT_TRUE(Publishes(part));
  Exchange(&part, 2, true);
  Update(&part);
  EXPECT_FALSE(Publishes(part));
  Update(&part);
  EXPECT_TRUE(Publishes(part)) << "a step early";
  Update(&part);
  Exchange(&part, 3, false);
  Update(&part);
  Update(&part);
  EXPECT_FALSE(Publishes(part));
}

TEST(RoundPartTest, AnOverdueRankComesEarlyOnlyIfTwoOfItsStepsAreShorterThanMaxWait) {
  MethodPlan plan{.payload = Payload::kModel, .admission = Admission::kRounds};
  plan.rounds.local_steps = 3;
  plan.rounds.max_wait = {.kind = Duration::Kind::kTime, .time = kSecond};
  RoundPart part(plan, 0, kForever, 0, 0);
  Update(&part);
  Exchange(&part, 1, true);
  part.OnEnd(5 * kSecond);
  Update(&part);
  part.OnEnd(6 * kSecond);  // not after an exchange
  EXPECT_TRUE(Publishes(part, 5 * kSecond + kSecond * 9 / 10)) << "two steps of 0.45 s";
  EXPECT_FALSE(Publishes(part, 6 * kSecond)) << "of 0.5 s";
}

TEST(RoundPartTest, ProgressThatWasKeptIsOfferedAgainButNotInFinish) {
  RoundPart part = PartOf(Payload::kModel, 1);
  StageResult kept = MergedWith(5, true);
  kept.is_kept = true;
  EXPECT_EQ(part.Follow(Stage::kMerge, Status::Ok(), kept), Stages{});
  // The offer comes after LOAD: it gives away the memory that LOAD reads.
  EXPECT_EQ(part.OnDone(Stage::kLoadModel), Stages{Stage::kOfferAgain});
  EXPECT_EQ(part.OnDone(Stage::kLoadModel), Stages{});
  part.Follow(Stage::kFlush, Status::Ok(), kept);
  EXPECT_EQ(part.Follow(Stage::kMerge, Status::Ok(), kept), Stages{});
  EXPECT_EQ(part.OnDone(Stage::kLoadModel), Stages{});
}

TEST(RoundPartTest, ARankLeftBehindMergesWithNothing) {
  RoundPart part = PartOf(Payload::kModel, 1);
  StageResult published, left;
  published.version = 3;
  part.Follow(Stage::kPublish, Status::Ok(), published);
  left.executed = 2;
  EXPECT_EQ(part.Follow(Stage::kAwait, Status::Ok(), left),
            (Stages{Stage::kMerge, Stage::kLoadModel}));
  left.is_left = true;
  EXPECT_EQ(part.Follow(Stage::kAwait, Status::Ok(), left), Stages{});
}

TEST(RoundPartTest, AFinishThatFailsAppliesWhatWasMade) {
  const Status late = Status::Timeout("rank 1 is missing");
  StageResult made;
  made.executed = 1;
  EXPECT_EQ(PartOf(Payload::kGradients, 0).Follow(Stage::kFlush, late, made),
            (Stages{Stage::kRead, Stage::kFlush}));
  EXPECT_EQ(PartOf(Payload::kModel, 1).Follow(Stage::kFlush, late, made),
            (Stages{Stage::kMerge, Stage::kLoadModel, Stage::kFlush}));
  EXPECT_EQ(PartOf(Payload::kModel, 1).Follow(Stage::kFlush, late, {}), Stages{Stage::kFlush});
}

TEST(RoundPartTest, ARankOfDeltasPublishesByItsOwnSteps) {
  RoundPart part = PartOf(Payload::kDelta, 2, 5);
  part.Follow(Stage::kAnchor, Status::Ok(), {});
  std::vector<int> published;
  for (int step = 1; step <= 5; ++step) {
    if (Publishes(part)) published.push_back(step);
    Update(&part);
    if (published.empty() || published.back() != step) continue;
    StageResult exchange;
    exchange.version = published.size();
    part.Follow(Stage::kPublish, Status::Ok(), exchange);
    exchange.executed = 2;  // others have made both already
    part.Follow(Stage::kAwait, Status::Ok(), exchange);
    while (part.applied() < part.executed()) part.Follow(Stage::kRead, Status::Ok(), exchange);
  }
  EXPECT_EQ(published, (std::vector<int>{2, 4, 5}));
}

TEST(RoundPartTest, AVersionThatIsGoneIsSoughtByEachInItsWay) {
  StageResult gone;
  gone.is_gone = true;
  EXPECT_EQ(PartOf(Payload::kGradients, 0).Follow(Stage::kRead, Status::Ok(), gone),
            (Stages{Stage::kSeek, Stage::kUnpack}));
  EXPECT_EQ(PartOf(Payload::kDelta, 2).Follow(Stage::kRead, Status::Ok(), gone),
            Stages{Stage::kSeek});
}

}  // namespace
}  // namespace covey
