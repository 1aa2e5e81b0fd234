// Goal: what is true of every method: its parameters are well formed, its text can be written and
// read back, its plan is pure and the same on all ranks; and wrong texts are refused by sentences
// that say what exists.
// Method: all methods of the catalogue, their defaults and drawn settings, many versions and views.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "core/base/rng.h"
#include "core/method/method.h"

namespace covey {
namespace {

constexpr uint64_t kSeed = 20261121;

std::string ErrorOf(std::string_view text) {
  MethodChoice choice;
  const Status status = ParseMethod(text, &choice);
  EXPECT_TRUE(status.ok() == (choice.method != nullptr));
  return status.message();
}

// Settings of `method`, drawn from the small end of their ranges.
MethodChoice Draw(const Method& method, Rng* rng) {
  MethodChoice choice{.method = &method, .settings = {}};
  for (const MethodParameter& p : method.parameters)
    choice.settings.push_back(p.minimum + static_cast<int64_t>(rng->Below(static_cast<uint64_t>(
                                              std::min<int64_t>(p.maximum - p.minimum, 20) + 1))));
  return choice;
}

TEST(EveryMethod, IsListedOnceInOrder) {
  const auto methods = Methods();
  for (size_t i = 1; i < methods.size(); ++i)
    EXPECT_LT(std::string_view(methods[i - 1]->name), methods[i]->name);
  EXPECT_NE(FindMethod("allreduce"), nullptr);
  EXPECT_NE(FindMethod("local"), nullptr);
  EXPECT_EQ(FindMethod("gossip"), nullptr);
}

TEST(EveryMethod, SaysWhatItIs) {
  for (const Method* method : Methods()) {
    for (const char* text :
         {method->help, method->bytes, method->citation, method->exchanged, method->partners,
          method->saved, method->late, method->learning_rate, method->memory})
      EXPECT_NE(std::string_view(text), "") << method->name;
    for (const MethodParameter& p : method->parameters) {
      EXPECT_LE(p.minimum, p.standard) << p.name;
      EXPECT_LE(p.standard, p.maximum) << p.name;
      EXPECT_NE(std::string_view(p.help), "") << p.name;
      EXPECT_EQ(std::string_view(p.name).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"),
                std::string_view::npos);
    }
  }
}

TEST(EveryMethod, TextIsReadBack) {
  Rng rng(kSeed);
  for (const Method* method : Methods()) {
    for (int i = 0; i < 50; ++i) {
      const MethodChoice drawn = Draw(*method, &rng);
      const std::string text = drawn.Text();
      EXPECT_EQ(text.find_first_of(" \t\n;&|<>()$`\\\"'*?[]#~!{}"), std::string::npos) << text;
      MethodChoice read;
      ASSERT_TRUE(ParseMethod(text, &read).ok()) << text;
      EXPECT_EQ(read.method, method);
      EXPECT_EQ(read.settings, drawn.settings);
      EXPECT_EQ(read.warmup_steps, 0);
      EXPECT_TRUE(read.then.empty());
    }
  }
}

TEST(EveryMethod, PlansAlikeOnAllRanksAndEachTime) {
  Rng rng(kSeed);
  for (const Method* method : Methods()) {
    for (int i = 0; i < 20; ++i) {
      const MethodChoice choice = Draw(*method, &rng);
      for (int32_t size : {1, 2, 3, 7, 64}) {
        for (int64_t version = 0; version < 50; ++version) {
          const MethodPlan first = choice.Plan({size, GroupIndex{0}}, version);
          for (int32_t rank = size - 1; rank >= 0; --rank)
            EXPECT_EQ(choice.Plan({size, GroupIndex{rank}}, version), first)
                << choice.Text() << " version " << version << " rank " << rank;
        }
      }
    }
  }
}

TEST(MethodText, WithoutParametersHasTheDefaults) {
  MethodChoice choice;
  ASSERT_TRUE(ParseMethod("local", &choice).ok());
  EXPECT_EQ(choice.Text(), "local:local_steps=8");
  ASSERT_TRUE(ParseMethod("local:warmup_steps=5,H=2", &choice).ok());
  EXPECT_EQ(choice.Text(), "local:local_steps=2,warmup_steps=5");
  ASSERT_TRUE(ParseMethod("allreduce", &choice).ok());
  EXPECT_EQ(choice.Text(), "allreduce");
}

TEST(MethodText, AdmissionsAndTimesAreReadAndWritten) {
  MethodChoice choice;
  const auto text = [&](const char* written) {
    return ParseMethod(written, &choice).ok() ? choice.Text() : "refused";
  };
  EXPECT_EQ(text("eager"),
            "eager:admit=0.5,grace=auto,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,"
            "seed=1");
  EXPECT_EQ(text("eager:admit=solo,grace=20ms"),
            "eager:admit=solo,grace=20ms,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,"
            "seed=1");
  EXPECT_EQ(
      text("eager:admit=1,grace=1500us"),
      "eager:admit=solo,grace=1500us,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,"
      "seed=1");
  EXPECT_EQ(
      text("eager:admit=all,grace=2s"),
      "eager:admit=all,grace=2s,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,seed=1");
  EXPECT_EQ(
      text("eager:admit=1.0,grace=0,log=2"),
      "eager:admit=all,grace=0s,max_wait=auto,log=2,max_staleness=32,progress=lockstep,seed=1");
  EXPECT_EQ(
      text("eager:admit=6"),
      "eager:admit=6,grace=auto,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,seed=1");
  EXPECT_EQ(text("eager:admit=0.250"),
            "eager:admit=0.25,grace=auto,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,"
            "seed=1");
  EXPECT_EQ(
      text("eager:admit=0.005"),
      "eager:admit=0.005,grace=auto,max_wait=auto,log=auto,max_staleness=32,progress=lockstep,"
      "seed=1");
  for (const char* admit : {"", "0", "-1", "0.0", "1.1", "2.0", ".", "0.", "0.0001", "0.5x", "some",
                            "Solo", "1e0", "99999999999999999999"})
    EXPECT_NE(ErrorOf("eager:admit=" + std::string(admit)), "") << admit;
  for (const char* grace : {"", "5", "ms", "-1ms", "1.5ns", ".5ms", "1.ms", "1.2.3s", "5 ms",
                            "5min", "2h", "4000s", "99999999999999999999s", "9999999999999999s"})
    EXPECT_NE(ErrorOf("eager:grace=" + std::string(grace)), "") << grace;
  EXPECT_EQ(
      ErrorOf("eager:admit=some"),
      "admit is \"some\", which is not solo, all, majority, first2 (one of 2 that are drawn), a "
      "number of ranks from 1, or a part of them such as 0.5, of three decimals at most");
  EXPECT_EQ(ErrorOf("wagma:admit=majority"),
            "admit is \"majority\", which is not solo, all, a number of ranks from 1, or a part of "
            "them such as 0.5, of three decimals at most");
  EXPECT_EQ(ErrorOf("eager:seed=x"),
            "seed is \"x\", which is not a whole number from 0 to 1099511627776");
  EXPECT_EQ(ErrorOf("eager:grace=5"),
            "grace is \"5\", which is not auto or a time such as 20ms from 0s to 3600s");
}

// Where all are waited for, the time is off unless told, and then nothing shows in the text.
TEST(MethodText, TimesThatMayBeOffAreReadAndWritten) {
  for (const std::string name : {"allreduce", "local"}) {
    MethodChoice choice;
    ASSERT_TRUE(ParseMethod(name, &choice).ok());
    const std::string plain = choice.Text();
    EXPECT_EQ(plain.find("max_wait"), std::string::npos);
    const auto text = [&](const std::string& time) {
      return ParseMethod(name + ":max_wait=" + time, &choice).ok() ? choice.Text() : "refused";
    };
    EXPECT_EQ(text("off"), plain);
    for (const auto& [given, written] :
         std::initializer_list<std::pair<const char*, const char*>>{{"2s", "2s"},
                                                                    {"2000ms", "2s"},
                                                                    {"300ms", "300ms"},
                                                                    {"1.5s", "1500ms"},
                                                                    {"0.250s", "250ms"},
                                                                    {"2.0s", "2s"},
                                                                    {"0.5us", "500ns"},
                                                                    {"auto", "auto"},
                                                                    {"1ns", "1ns"},
                                                                    {"86400s", "86400s"}}) {
      EXPECT_EQ(text(given),
                plain + (plain == name ? ":" : ",") + std::string("max_wait=") + written);
      EXPECT_EQ(choice.OwnText(), choice.Text());
      MethodChoice again;
      EXPECT_TRUE(ParseMethod(choice.Text(), &again).ok());
      EXPECT_EQ(again.settings, choice.settings);
    }
    for (const char* time : {"", "0", "0s", "0ms", "-1s", "abc", "5", "Auto", "Off", "1.5ns", "2 s",
                             "1m", "86401s", "99999999999999999999s"})
      EXPECT_EQ(text(time), "refused") << time;
    for (const char* time : {"-1s", "abc", "0s"})
      EXPECT_EQ(ErrorOf(name + ":max_wait=" + time),
                "max_wait is \"" + std::string(time) +
                    "\", which is not off, auto or a time such as 2s from 1ns to 86400s");
  }
  EXPECT_TRUE(ErrorOf("local:max_wiat=1s").ends_with("the nearest is \"max_wait\""));
}

TEST(MethodText, NormsAreReadAndWritten) {
  for (const Method* method : Methods()) {
    const std::string name = method->name;
    MethodChoice choice;
    ASSERT_TRUE(ParseMethod(name, &choice).ok());
    const std::string plain = choice.Text();
    const auto text = [&](const std::string& norm) {
      return ParseMethod(name + ":clip_norm=" + norm, &choice).ok() ? choice.Text() : "refused";
    };
    EXPECT_EQ(text("off"), plain);
    for (const auto& [given, written] :
         std::initializer_list<std::pair<const char*, const char*>>{{"1", "1"},
                                                                    {"1.0", "1"},
                                                                    {"0.25", "0.25"},
                                                                    {"0.1", "0.1"},
                                                                    {"2.50", "2.5"},
                                                                    {"1e-05", "0.00001"},
                                                                    {"0.000001", "0.000001"},
                                                                    {"1e9", "1000000000"}}) {
      EXPECT_TRUE(text(given).ends_with(std::string("clip_norm=") + written)) << text(given);
      EXPECT_EQ(choice.OwnText(), choice.Text());
      MethodChoice again;
      EXPECT_TRUE(ParseMethod(choice.Text(), &again).ok());
      EXPECT_EQ(again.clip_norm, choice.clip_norm);
    }
    for (const char* norm : {"", "0", "0.0", "-1", "nan", "inf", "x", "1x", " 1", "1e-7", "1e10",
                             "1.2345678", "0x1", "None", "True"})
      EXPECT_EQ(text(norm), "refused") << norm;
  }
  EXPECT_EQ(ErrorOf("eager:clip_norm=0"),
            "clip_norm is \"0\", which is not off or a number from 0.000001 to 1000000000");
  EXPECT_EQ(ErrorOf("wagma:clip_nrom=1").substr(0, 47),
            "the method \"wagma\" has no parameter \"clip_nrom\"");
  EXPECT_TRUE(ErrorOf("wagma:clip_nrom=1").ends_with("the nearest is \"clip_norm\""));
  EXPECT_EQ(ErrorOf("local:clip_norm=1,clip_norm=2"),
            "clip_norm is given twice in the method \"local:clip_norm=1,clip_norm=2\"");
}

TEST(MethodText, WrongOnesAreRefusedWithWhatExists) {
  const std::string unknown = ErrorOf("lokal");
  EXPECT_TRUE(unknown.starts_with("there is no method \"lokal\"; there are: ")) << unknown;
  EXPECT_TRUE(unknown.ends_with("; the nearest is \"local\"")) << unknown;
  EXPECT_NE(ErrorOf(""), "");
  EXPECT_TRUE(ErrorOf("WAGMA").ends_with("; the nearest is \"wagma\""));
  EXPECT_EQ(ErrorOf("local:local_step=8"),
            "the method \"local\" has no parameter \"local_step\"; it has local_steps (H), "
            "max_wait, codec, warmup_steps, clip_norm, then; the nearest is \"local_steps\"");
  EXPECT_EQ(ErrorOf("allreduce:warmup=2"),
            "the method \"allreduce\" has no parameter \"warmup\"; it has max_wait, codec, "
            "warmup_steps, clip_norm, then; the nearest is \"warmup_steps\"");
  EXPECT_EQ(ErrorOf("local:H=0"),
            "local_steps is \"0\", which is not a number of steps from 1 to 1000000000");
  for (const char* number : {"", "-1", "1.5", "x", "8 ", " 8", "+8", "99999999999999999999", "0x8"})
    EXPECT_NE(ErrorOf("local:local_steps=" + std::string(number)), "") << number;
  EXPECT_EQ(ErrorOf("local:H"), "\"H\" in the method \"local:H\" is not of the form name=value");
  EXPECT_EQ(ErrorOf("local:H=2,local_steps=3"),
            "local_steps is given twice in the method \"local:H=2,local_steps=3\"");
  for (const char* text : {"local:", "local:H=2,", "local:,H=2", "local:=2", "Local", " local",
                           "local ", "local:h=2", "local;H=2"})
    EXPECT_NE(ErrorOf(text), "") << text;
}

TEST(MethodText, ACodecIsReadAndWrittenWithAllItsValues) {
  for (const auto& [text, full] : std::initializer_list<std::pair<const char*, const char*>>{
           {"allreduce:codec=int8", "allreduce:codec=int8@block=256"},
           {"allreduce:codec=int8@512", "allreduce:codec=int8@block=512"},
           {"allreduce:codec=topk@bits=2+block=512,clip_norm=1",
            "allreduce:codec=topk@bits=2+block=512,clip_norm=1"},
           {"allreduce:codec=off", "allreduce"},
           {"local:H=4,codec=bf16,then=allreduce@90",
            "local:local_steps=4,codec=bf16@random=0,then=allreduce@90"},
           {"local:H=4,then=allreduce@90,codec=qsgd@bits=4",
            "local:local_steps=4,then=allreduce@90:codec=qsgd@bits=4+block=512"},
           {"adpsgd:codec=lattice",
            "adpsgd:topology=auto,seed=1,max_wait=60s,codec=lattice@bits=8"},
           {"adpsgd:codec=bf16@random",
            "adpsgd:topology=auto,seed=1,max_wait=60s,codec=bf16@random=1"},
           {"dpsgd:codec=qsgd@8+block=1008",
            "dpsgd:topology=exponential,order=cwa,seed=1,codec=qsgd@bits=8+block=1008"},
           {"adpsgd:codec=lattice@bits=4",
            "adpsgd:topology=auto,seed=1,max_wait=60s,codec=lattice@bits=4"},
           {"adpsgd:codec=lattice@12",
            "adpsgd:topology=auto,seed=1,max_wait=60s,codec=lattice@bits=12"}}) {
    MethodChoice choice, again;
    ASSERT_TRUE(ParseMethod(text, &choice).ok()) << ErrorOf(text);
    EXPECT_EQ(choice.Text(), full);
    ASSERT_TRUE(ParseMethod(choice.Text(), &again).ok());
    EXPECT_EQ(again.Text(), full);
  }
}

TEST(MethodText, ACodecThatMakesNoSenseIsRefusedWithTheReason) {
  for (const auto& [text, reason] : std::initializer_list<std::pair<const char*, const char*>>{
           {"allreduce:codec=int9",
            "the method allreduce: there is no codec 'int9'; there are "
            "bf16, fp16, int8, qsgd, topk; the nearest is int8"},
           {"allreduce:codec=lattice@8", "decodes beside a model that the receiver has near"},
           {"local:codec=lattice", "decodes beside a model that the receiver has near"},
           {"swarm:codec=topk", "codec topk leaves most of what it encodes out"},
           {"adpsgd:codec=topk@2", "the nearest is"},
           {"dpsgd:codec=topk", "codec topk leaves most of what it encodes out"},
           {"adpsgd:codec=qsgd@4", "too coarse for models as they are"},
           {"dpsgd:codec=qsgd@8+block=1012", "with 8 bits and a block of at most 1008"},
           {"dpsgd:codec=lattice", "decodes beside one other model"},
           {"dpsgd:codec=int9", "there are bf16, fp16, int8, qsgd; the nearest is int8"},
           {"swarm:codec=bf17", "bf16, fp16, int8, lattice, qsgd; the nearest is bf16"},
           {"adpsgd:codec=bf16@randon", "has no parameter 'randon'; there are random"},
           {"adpsgd:codec=int8@block", "codec int8: block  is not a multiple of 4"},
           {"swarm:codec=lattice@3", "bits 3 is not a whole number from 4 to 16"},
           {"swarm:codec=lattice@17", "bits 17 is not a whole number from 4 to 16"},
           {"swarm:codec=lattice@8.5", "bits 8.5 is not a whole number from 4 to 16"},
           {"swarm:codec=lattice@-1", "bits -1 is not a whole number from 4 to 16"},
           {"swarm:codec=latice", "the nearest is lattice"},
           {"eager:codec=int8", "the method eager has no codec: on one host contributions are"},
           {"wagma:codec=lattice", "the method wagma has no codec: on one host contributions are"},
           {"eager:codec=int8", "allreduce, local, dpsgd, swarm and adpsgd have codecs"},
           {"allreduce:max_wait=2s,codec=int8", "leave out max_wait or codec"},
           {"local:codec=int8,max_wait=auto", "leave out max_wait or codec"},
           {"local:codec=int8,codec=bf16", "codec is given twice"}})
    EXPECT_NE(ErrorOf(text).find(reason), std::string::npos) << ErrorOf(text);
}

TEST(MethodText, JsonListsAll) {
  const std::string json = MethodsJson();
  EXPECT_NE(json.find(R"({"name":"local","help":")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"(,"lr_scale":"ranks","parameters":[{"name":"local_steps")"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"name":"local_steps","letter":"H","unit":"steps","default":8,)"
                      R"("minimum":1,"maximum":1000000000,"help":")"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"name":"max_wait","letter":"","unit":"time","default":"off",)"
                      R"("minimum":"auto","maximum":"86400s","help":")"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("name":"admit","letter":"","unit":"ranks","default":"0.5",)"
                      R"("minimum":"first1000","maximum":"1048576","help":")"),
            std::string::npos)
      << json;
}

}  // namespace
}  // namespace covey
