// Goal: warmup_steps and then=METHOD@N are read, written and done alike by every method: the text
// nests without ambiguity, and what is exchanged changes at exactly the step that was named.
// Method: golden texts and errors; plans of every pair of methods beside the plans of each alone.
#include <gtest/gtest.h>

#include "core/method/method.h"

namespace covey {
namespace {

// The text as it is written back, or the error.
std::string Read(std::string_view text) {
  MethodChoice choice;
  const Status status = ParseMethod(text, &choice);
  return status.ok() ? choice.Text() : status.message();
}

MethodChoice Choice(std::string_view text) {
  MethodChoice choice;
  EXPECT_TRUE(ParseMethod(text, &choice).ok()) << text;
  return choice;
}

// The payloads of versions 0, 1, ...: "-" none, "g" gradients, "m" model.
std::string Payloads(std::string_view text, int64_t versions) {
  const MethodChoice choice = Choice(text);
  std::string letters;
  for (int64_t v = 0; v < versions; ++v)
    letters += "-gm"[static_cast<int>(choice.Plan({.size = 3, .rank = GroupIndex{1}}, v).payload)];
  return letters;
}

TEST(SwitchText, IsWrittenBackWithAllParameters) {
  EXPECT_EQ(Read("allreduce:then=local@1000"), "allreduce:then=local@1000:local_steps=8");
  EXPECT_EQ(Read("allreduce:then=local@1000:H=4,warmup_steps=5"),
            "allreduce:then=local@1000:local_steps=4,warmup_steps=5");
  EXPECT_EQ(Read("local:warmup_steps=5,H=4,then=local@100:H=16,then=allreduce@900"),
            "local:local_steps=4,warmup_steps=5,then=local@100:local_steps=16,then=allreduce@900");
  EXPECT_EQ(Read("allreduce:then=local@9,H=2,then=allreduce@20"),
            "allreduce:then=local@9:local_steps=2,then=allreduce@20");
  EXPECT_EQ(Read("allreduce:warmup_steps=3"), "allreduce:warmup_steps=3");
  EXPECT_EQ(Read("allreduce:warmup_steps=0"), "allreduce");
  EXPECT_EQ(Read("eager:admit=solo,then=allreduce@1"),
            "eager:admit=solo,grace=auto,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,"
            "seed=1,then=allreduce@1");
}

TEST(SwitchText, IsReadBack) {
  for (const Method* first : Methods())
    for (const Method* second : Methods()) {
      const std::string text = std::string(first->name) + ":warmup_steps=2,then=" + second->name +
                               "@7:warmup_steps=3,then=" + first->name + "@20";
      const std::string full = Read(text);
      EXPECT_EQ(Read(full), full);
      EXPECT_EQ(full.find_first_of(" \t\n;&|<>()$`\\\"'*?[]#~!{}"), std::string::npos) << full;
    }
}

TEST(SwitchText, WrongOnesAreRefusedWithWhatExists) {
  const std::string form =
      ", which is not a method and the step it begins at, such as local@1000 "
      "or local@1000:local_steps=8";
  EXPECT_EQ(Read("allreduce:then=local"), "then is \"local\"" + form);
  for (const char* word : {"", "@", "local@", "local@x", "local@-1", "local@1.5", "local@1@2",
                           "local:H=2@5", "local@99999999999"})
    EXPECT_EQ(Read("allreduce:then=" + std::string(word)),
              "then is \"" + std::string(word) + "\"" + form);
  EXPECT_EQ(Read("allreduce:then=lokal@5").substr(0, 55),
            "there is no method \"lokal\"; there are: adpsgd, allreduc");
  EXPECT_EQ(Read("allreduce:then=local@5:h=2"),
            "the method \"local\" has no parameter \"h\"; it has local_steps (H), max_wait, "
            "codec, warmup_steps, clip_norm, then; the nearest is \"then\"");
  EXPECT_EQ(
      Read("local:warmup_steps=5,then=allreduce@5"),
      "allreduce@5 in the method \"local:warmup_steps=5,then=allreduce@5\" begins before local "
      "has done a step: it may from step 6");
  EXPECT_NE(Read("allreduce:then=local@9:then=local@9").find("may from step 10"),
            std::string::npos);
  EXPECT_NE(Read("allreduce:then=local@0").find("may from step 1"), std::string::npos);
  EXPECT_EQ(Read("local:warmup_steps=-1"),
            "warmup_steps is \"-1\", which is not a number of steps from 0 to 1000000000");
  EXPECT_EQ(Read("eager:warmup_steps=1,warmup_steps=2"),
            "warmup_steps is given twice in the method \"eager:warmup_steps=1,warmup_steps=2\"");
}

TEST(Switch, HappensAtItsStepAndLeavesEqualReplicas) {
  EXPECT_EQ(Payloads("allreduce:then=local@3:H=2", 9), "ggg-m-m-m");
  EXPECT_EQ(Payloads("local:H=4,then=allreduce@6", 9), "---m-mggg");
  EXPECT_EQ(Payloads("local:H=4,then=allreduce@4", 6), "---mgg");
  EXPECT_EQ(Payloads("local:H=4,then=allreduce@1", 3), "mgg");
  EXPECT_EQ(Payloads("local:H=3,warmup_steps=2,then=local@6:H=2,warmup_steps=1", 11),
            "gg--mmg-m-m");
  EXPECT_EQ(Payloads("local:H=100,then=local@4:H=3,then=allreduce@9", 11), "---m--m-mgg");
}

TEST(Switch, TellsWhatHoldsAndUntilWhen) {
  const MethodChoice choice = Choice("eager:admit=2,warmup_steps=3,then=local@9:H=2");
  EXPECT_EQ(choice.Until(0), 9) << "its rounds are those of its warm-up";
  EXPECT_EQ(choice.Until(3), 9);
  for (const char* after : {"local:H=2", "local:H=2,max_wait=1s", "wagma:S=2", "adpsgd"}) {
    const std::string words = std::string(after).find(':') == std::string::npos ? ":" : ",";
    EXPECT_EQ(Choice(after + words + "warmup_steps=3").Until(0), 3) << after;
    EXPECT_EQ(Choice(after + words + "warmup_steps=3").Until(3), kForever) << after;
  }
  EXPECT_EQ(choice.Until(8), 9);
  EXPECT_EQ(choice.Until(9), kForever);
  EXPECT_EQ(
      choice.At(8).OwnText(),
      "eager:admit=2,grace=auto,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,seed=1");
  EXPECT_EQ(choice.At(9).OwnText(), "local:local_steps=2");
}

// What is in rounds is finished where it ends; each part has its own max_wait, or none.
TEST(Switch, EachMethodHasItsOwnMaxWait) {
  const std::string text = "local:H=3,max_wait=1s,then=allreduce@5:max_wait=2s,then=local@9:H=2";
  EXPECT_EQ(Read(text),
            "local:local_steps=3,max_wait=1s,then=allreduce@5:max_wait=2s,then=local@9:local_steps="
            "2");
  const MethodChoice choice = Choice(text);
  EXPECT_EQ(choice.At(4).OwnText(), "local:local_steps=3,max_wait=1s");
  EXPECT_EQ(choice.At(5).OwnText(), "allreduce:max_wait=2s");
  EXPECT_EQ(choice.At(9).OwnText(), "local:local_steps=2");
  EXPECT_EQ(Payloads(text, 13), "mmmmmgggg-m-m");
  for (int64_t v = 0; v < 13; ++v)
    EXPECT_EQ(choice.Plan({.size = 3, .rank = GroupIndex{0}}, v).admission == Admission::kRounds,
              v < 9)
        << v;
}

// Rounds of every method end with a version that waits for all, the first before the next method.
TEST(Switch, RoundsKnowTheFirstVersionTheyMayEndWith) {
  const MethodView view{.size = 3, .rank = GroupIndex{0}};
  for (const char* text :
       {"allreduce:max_wait=1s,then=wagma@9:S=2", "eager:admit=all,then=local@9",
        "eager:admit=2,warmup_steps=4,then=allreduce@9", "wagma:S=2,then=allreduce@9",
        "wagma:S=2,warmup_steps=9", "adpsgd:warmup_steps=9"})
    for (int64_t v = 0; v < 9; ++v)
      EXPECT_EQ(Choice(text).Plan(view, v).rounds.ending, 9 - v) << text << v;
  for (const char* text : {"allreduce:max_wait=1s", "eager:admit=2,warmup_steps=4",
                           "local:max_wait=1s,then=allreduce@9", "adpsgd:then=allreduce@9"})
    for (int64_t v = 0; v < 9; ++v)
      EXPECT_EQ(Choice(text).Plan(view, v).rounds.ending, 0) << text << v;
}

TEST(Switch, EachMethodHasItsOwnClipNorm) {
  const std::string text = "allreduce:clip_norm=2,warmup_steps=3,then=local@9:clip_norm=0.5";
  EXPECT_EQ(Read(text),
            "allreduce:clip_norm=2,warmup_steps=3,then=local@9:local_steps=8,clip_norm=0.5");
  const MethodChoice choice = Choice(text + ",then=eager@20:admit=2");
  EXPECT_EQ(choice.At(0).OwnText(), "allreduce:clip_norm=2");
  EXPECT_EQ(choice.At(9).OwnText(), "local:local_steps=8,clip_norm=0.5");
  EXPECT_EQ(choice.At(20).OwnText().find("clip_norm"), std::string::npos);
}

// Before a method that begins with `plan`, with so many steps left: bounded if that is.
bool IsWarmup(const MethodPlan& warmup, const MethodPlan& plan, int64_t left) {
  const bool in_pairs = plan.admission == Admission::kPairs;
  const bool has_neighbors = plan.admission == Admission::kNeighbors;
  const Duration max_wait = in_pairs        ? plan.pairs.max_wait
                            : has_neighbors ? plan.neighbors.max_wait
                                            : plan.rounds.max_wait;
  const bool is_of_all = plan.admission == Admission::kAll || has_neighbors;
  if (is_of_all && max_wait.kind == Duration::Kind::kOff)
    return warmup == MethodPlan{.payload = Payload::kGradients};
  const bool is_own = !in_pairs && plan.payload == Payload::kGradients;
  return warmup.payload == Payload::kGradients && warmup.admission == Admission::kRounds &&
         warmup.rounds.warmup == left && warmup.rounds.max_wait == max_wait &&
         warmup.rounds.admit == (is_own ? plan.rounds.admit : AdmitRule::All()) &&
         warmup.rounds.group_size == 0;
}

// The version that rounds of so many steps end with: of deltas the last that begins in them.
int64_t EndingOf(const MethodPlan& plan, int64_t steps) {
  const int64_t local = plan.rounds.local_steps;
  if (local == 0) return steps;
  return plan.payload == Payload::kDelta ? (steps + local - 1) / local : 0;
}

// In its own part of the steps a method does what it does alone, but for the last of them.
TEST(Switch, EveryMethodCountsFromWhereItBegins) {
  const MethodView view{.size = 4, .rank = GroupIndex{1}};
  for (const Method* first : Methods())
    for (const Method* second : Methods()) {
      const std::string text =
          std::string(first->name) + ":warmup_steps=5,then=" + second->name + "@40:warmup_steps=10";
      const MethodChoice both = Choice(text);
      for (int64_t v = 0; v < 100; ++v) {
        const bool warms_up = v < 5 || (v >= 40 && v < 50);
        const MethodPlan alone = v < 40
                                     ? Choice(first->name).Plan(view, v - 5 + (v < 5 ? 5 : 0))
                                     : Choice(second->name).Plan(view, v - 50 + (v < 50 ? 50 : 0));
        if (warms_up) {
          EXPECT_TRUE(IsWarmup(both.Plan(view, v), alone, (v < 40 ? 5 : 50) - v)) << text << v;
        } else if (v != 39) {
          MethodPlan plan = both.Plan(view, v);
          const bool ends = v < 40 && alone.admission == Admission::kRounds;
          EXPECT_EQ(plan.rounds.ending, ends ? EndingOf(alone, 40 - v) : 0);
          plan.rounds.ending = 0;
          EXPECT_EQ(plan, alone) << text << " version " << v;
        } else if (alone.admission == Admission::kAll) {
          EXPECT_NE(both.Plan(view, v).payload, Payload::kNone) << text;
        }
      }
    }
}

}  // namespace
}  // namespace covey
