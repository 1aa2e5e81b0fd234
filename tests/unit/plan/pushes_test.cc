// Goal: where memory is mirrored, every byte that a rank reads of a peer's landing slot was pushed
// to it before the signal it waited for; and every algorithm is right where some members share a
// host and others do not, however they lie.
// Method: the symbolic verifier over the whole catalogue; pinned damage. (That any push that is
// dropped, late or short is found: verify_mutants_test.cc.)
#include "core/plan/pushes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/plan/problems.h"

namespace covey {
namespace {

constexpr uint64_t kSlot = 16384;

std::string Text(const std::vector<int32_t>& hosts) {
  std::string text = hosts.empty() ? "" : " on hosts";
  for (const int32_t host : hosts) text += " " + std::to_string(host);
  return text;
}

void VerifyAll(Kind kind, int32_t size, uint64_t elems, DType dtype, uint64_t slot_bytes,
               uint32_t depth = kMinLandingSlots) {
  for (const Algorithm* algorithm : Algorithms()) {
    if (algorithm->kind != kind) continue;
    Problem base = MakeProblem(kind, size, elems * SizeOf(dtype), slot_bytes, dtype);
    base.depth = depth;
    std::vector<Problem> problems;
    if (size <= 13 || size == 31 || size == 64) problems = OnHosts(*algorithm, base);
    problems.push_back(Mirrored(*algorithm, base));
    for (const Problem& problem : problems) {
      if (!CanDo(*algorithm, problem)) continue;
      const Status status = Verify(*algorithm, problem);
      ASSERT_TRUE(status.ok()) << NameOf(kind) << "/" << algorithm->name << " on " << size
                               << " ranks" << Text(problem.hosts) << ", " << elems << " "
                               << NameOf(dtype) << ": " << status.message();
    }
  }
}

class PushesTest : public testing::TestWithParam<int> {
 protected:
  static Kind KindOf(int number) { return static_cast<Kind>(number); }
};

TEST_P(PushesTest, SufficeForEveryNumberOfRanks) {
  for (int32_t size = 1; size <= 64; ++size)
    VerifyAll(KindOf(GetParam()), size, 1237, DType::kF32, kSlot);
}

TEST_P(PushesTest, SufficeForSeveralSegments) {
  for (const int32_t size : {2, 3, 4, 8, 13})
    for (const uint64_t elems : {0, 1, 4097, 25 * 1024 + 3})
      for (const DType dtype : {DType::kF32, DType::kBF16})
        VerifyAll(KindOf(GetParam()), size, elems, dtype, kSlot);
}

TEST_P(PushesTest, SufficeForMoreSlots) {
  for (const uint32_t depth : {6, 24})
    for (const int32_t size : {2, 3, 5, 8})
      VerifyAll(KindOf(GetParam()), size, 70 * 128 + 3, DType::kF32, 512, depth);
}

TEST_P(PushesTest, SufficeForSmallSlots) {
  for (const int32_t size : {2, 3, 5})
    for (const uint64_t elems : {16, 17, 1000})
      VerifyAll(KindOf(GetParam()), size, elems, DType::kF32, 64);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PushesTest, testing::Range(0, kNumKinds),
                         [](const auto& info) { return NameOf(static_cast<Kind>(info.param)); });

// What the verifier says of the schedules of `algorithm` on three ranks once `change` has been at
// them.
template <typename Change>
std::string Verdict(const char* algorithm, Change change) {
  const Algorithm* found = FindAlgorithm(Kind::kAllreduce, algorithm);
  const Problem problem =
      Mirrored(*found, MakeProblem(Kind::kAllreduce, 3, 5 * kSlot + 640, kSlot));
  std::vector<Schedule> schedules = BuildAll(*found, problem);
  change(&schedules);
  return VerifySchedules(problem, schedules, found->association, {}).message();
}

TEST(PushesDamageTest, WhatIsNotPushedIsNamed) {
  const std::string dropped = Verdict("flat", [](auto* schedules) {
    std::vector<Step>& steps = (*schedules)[1].steps;
    const auto push = std::find_if(steps.begin(), steps.end(),
                                   [](const Step& step) { return step.kind == StepKind::kPush; });
    ASSERT_NE(push, steps.end());
    steps.erase(push);
  });
  EXPECT_NE(dropped.find("reads landing[1].1+0, of which byte 0 is not pushed by then"),
            std::string::npos)
      << dropped;
}

TEST(PushesDamageTest, WhatGoesWithTheBeginIsNeeded) {
  const std::string dropped = Verdict("flat", [](auto* schedules) {
    ASSERT_FALSE((*schedules)[2].begin_pushes.empty());
    (*schedules)[2].begin_pushes.clear();
  });
  EXPECT_NE(dropped.find("reads landing[2].0+0, of which byte 0 is not pushed by then"),
            std::string::npos)
      << dropped;
}

// The last wait of rank 0 is dropped: it may write, or end, while the last segment is on its way.
TEST(PushesDamageTest, AnInputStaysWhileTheNetworkReadsIt) {
  const Algorithm* put = FindAlgorithm(Kind::kAllreduce, "put");
  const Problem problem = Mirrored(*put, MakeProblem(Kind::kAllreduce, 2, 2 * kSlot, kSlot));
  std::vector<Schedule> schedules = BuildAll(*put, problem);
  std::vector<Step>& steps = schedules[0].steps;
  const auto last = std::find_if(steps.rbegin(), steps.rend(),
                                 [](const Step& step) { return step.kind == StepKind::kWait; });
  steps.erase(std::next(last).base());
  const auto verdict = [&](bool in_place) {
    return VerifySchedules(problem, schedules, put->association, {.in_place = in_place}).message();
  };
  const std::string written = verdict(true), left = verdict(false);
  EXPECT_NE(written.find("overwrites output[0]+24576, which rank 1 may still use (S3)"),
            std::string::npos)
      << written;
  EXPECT_NE(left.find("rank 0 at its end: rank 1 may still use its memory (S4)"), std::string::npos)
      << left;
}

TEST(PushesDamageTest, WhereMemoryIsSharedNothingIsPushed) {
  Problem problem = MakeProblem(Kind::kAllreduce, 2, 640, kSlot);
  const Algorithm* flat = FindAlgorithm(Kind::kAllreduce, "flat");
  problem.mirrored = true;
  const std::vector<Schedule> schedules = BuildAll(*flat, problem);
  problem.mirrored = false;
  const Status status = VerifySchedules(problem, schedules, flat->association, {});
  EXPECT_NE(status.message().find("pushes where memory is not mirrored"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace covey
