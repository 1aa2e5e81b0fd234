// A tensor that one rank never submits: after the warning time every rank says which tensor, which
// ranks are missing, what they did last, and where they are.
#include <gtest/gtest.h>

#include "tests/sim/simulator/world.h"

namespace covey {
namespace {

struct Logged {
  std::string text;
  bool Has(const std::string& part) const { return text.find(part) != std::string::npos; }
};

Request Named(World* world, int32_t rank, const std::string& name, float* value) {
  Request r;
  r.kind = Kind::kAllreduce;
  r.group = world->GroupOn(rank, world->everybody());
  r.name = name;
  r.inputs = r.outputs = {MakeTensor(DType::kF32, {1}, value)};
  return r;
}

// Lets ranks 0 and 1 wait for 'lost', which rank 2 never submits, for 13 virtual seconds.
Logged RunStall(bool agreed_before, int tenths = 130) {
  World world({.size = 3, .seed = 5, .log_level = LogLevel::kWarn});
  float values[3] = {1, 2, 4};
  for (const char* name : {"lost", "other"}) {
    if (!agreed_before && std::string(name) == "lost") continue;
    std::vector<Operation*> operations;
    for (int32_t r = 0; r < 3; ++r)
      operations.push_back(world.Submit(r, Named(&world, r, name, &values[r])));
    EXPECT_TRUE(world.RunUntilEnded(operations));
  }
  testing::internal::CaptureStderr();
  for (int32_t r = 0; r < 2; ++r) world.Submit(r, Named(&world, r, "lost", &values[r]));
  for (int i = 0; i < tenths; ++i) {
    world.AdvanceClock(100 * kMillisecond);
    for (int step = 0; step < 30; ++step) world.Step();
    world.runtime(2).stall().Tell("train.py:42 in step");
  }
  return {testing::internal::GetCapturedStderr()};
}

TEST(StallTest, NamesTensorRanksAndTheirLineBeforeAgreement) {
  const Logged logged = RunStall(false);
  EXPECT_TRUE(logged.Has("covey rank 0 warning: waiting for 10.0 s for rank 2 to submit 'lost'"))
      << logged.text;
  EXPECT_TRUE(logged.Has("covey rank 1 warning: waiting for 10.0 s for rank 2 to submit 'lost'"))
      << logged.text;
  EXPECT_TRUE(logged.Has("covey rank 2 warning: other ranks wait")) << logged.text;
  EXPECT_TRUE(logged.Has("covey rank 0 warning: rank 2: last operation allreduce 'other'"))
      << logged.text;
  EXPECT_TRUE(logged.Has("now at train.py:42 in step")) << logged.text;
}

TEST(StallTest, NamesThemInBandToo) {
  const Logged logged = RunStall(true);
  EXPECT_TRUE(logged.Has("rank 0 warning: waiting for 10.")) << logged.text;
  EXPECT_TRUE(logged.Has("for rank 2 to submit allreduce 'lost'")) << logged.text;
  EXPECT_TRUE(logged.Has("rank 2 warning: other ranks wait")) << logged.text;
  EXPECT_TRUE(logged.Has("now at train.py:42 in step")) << logged.text;
}

TEST(StallTest, SaysHowLongItHasBeenEachTime) {
  for (const bool agreed_before : {false, true}) {
    const Logged logged = RunStall(agreed_before, 330);
    for (const char* time : {"10.", "20.", "30."}) {
      const std::string since = std::string(" for ") + time;
      EXPECT_TRUE(logged.Has("rank 0 warning: waiting" + since)) << logged.text;
      EXPECT_TRUE(logged.Has("rank 2 warning: other ranks wait" + since)) << logged.text;
    }
  }
}

TEST(StallTest, WhatRunsIsNotCalledMissing) {
  World world({.size = 2, .seed = 7, .algorithm = "ring", .log_level = LogLevel::kWarn});
  std::vector<float> values[2] = {std::vector<float>(1 << 16), std::vector<float>(1 << 16)};
  std::vector<Operation*> operations;
  for (const bool again : {false, true}) {
    ASSERT_TRUE(!again || world.RunUntilEnded(operations));
    operations.clear();
    for (int32_t r = 0; r < 2; ++r) {
      Request request = Named(&world, r, "long", nullptr);
      request.inputs = request.outputs = {MakeTensor(DType::kF32, {1 << 16}, values[r].data())};
      operations.push_back(world.Submit(r, std::move(request)));
    }
  }
  bool moved = false;
  testing::internal::CaptureStderr();
  world.runtime(1).RunOnce(&moved);  // begins, and stops there
  for (int i = 0; i < 130; ++i) {
    world.AdvanceClock(100 * kMillisecond);
    world.runtime(0).RunOnce(&moved);
  }
  EXPECT_TRUE(world.RunUntilEnded(operations));
  const Logged logged{testing::internal::GetCapturedStderr()};
  EXPECT_TRUE(logged.Has("covey rank 0 warning: allreduce 'long' runs for 10.")) << logged.text;
  EXPECT_TRUE(logged.Has("waits for rank 1, in the middle of it")) << logged.text;
  EXPECT_FALSE(logged.Has("submit")) << logged.text;
}

TEST(StallTest, StatusSaysWhoIsAwaited) {
  World world({.size = 2, .seed = 3});
  float values[2] = {1, 2};
  std::vector<Operation*> operations;
  for (int32_t r = 0; r < 2; ++r)
    operations.push_back(world.Submit(r, Named(&world, r, "x", &values[r])));
  ASSERT_TRUE(world.RunUntilEnded(operations));
  EXPECT_NE(world.runtime(0).StatusText().find("waits for nothing; last operation allreduce 'x'"),
            std::string::npos);
  world.Submit(0, Named(&world, 0, "x", &values[0]));
  for (int step = 0; step < 50; ++step) world.Step();
  const std::string text = world.runtime(0).StatusText();
  EXPECT_NE(text.find("allreduce 'x' submitted"), std::string::npos) << text;
  EXPECT_NE(text.find("waits for rank 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace covey
