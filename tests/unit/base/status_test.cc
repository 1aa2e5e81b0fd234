// Goal: Status keeps code, sentence and peer through copies and moves, OK is free, and CHECK ends
// the process with the place, the condition and the reason. Method: direct calls; death tests for
// the aborts.
#include "core/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "core/api/covey.h"
#include "core/base/check.h"

namespace covey {
namespace {

TEST(Status, OkIsOnePointerWithoutContent) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), StatusCode::kOk);
  EXPECT_EQ(ok.peer(), kNoRank);
  EXPECT_EQ(ok.message(), "");
  EXPECT_EQ(ok.ToString(), "ok");
  EXPECT_EQ(sizeof(Status), sizeof(void*));
}

TEST(Status, FactoriesSetTheirCode) {
  EXPECT_EQ(Status::InvalidArgument("m").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Status::NotInitialized("m").code(), StatusCode::kNotInitialized);
  EXPECT_EQ(Status::Mismatch("m").code(), StatusCode::kMismatch);
  EXPECT_EQ(Status::Aborted("m").code(), StatusCode::kAborted);
  EXPECT_EQ(Status::Timeout("m").code(), StatusCode::kTimeout);
  EXPECT_EQ(Status::Unsupported("m").code(), StatusCode::kUnsupported);
  EXPECT_EQ(Status::Exhausted("m").code(), StatusCode::kExhausted);
  EXPECT_EQ(Status::Forked("m").code(), StatusCode::kForked);
  EXPECT_EQ(Status::Internal("m").code(), StatusCode::kInternal);
}

TEST(Status, CodesAreThoseOfTheCApi) {
  EXPECT_EQ(static_cast<int>(StatusCode::kOk), COVEY_OK);
  EXPECT_EQ(static_cast<int>(StatusCode::kInvalidArgument), COVEY_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<int>(StatusCode::kNotInitialized), COVEY_NOT_INITIALIZED);
  EXPECT_EQ(static_cast<int>(StatusCode::kMismatch), COVEY_MISMATCH);
  EXPECT_EQ(static_cast<int>(StatusCode::kAborted), COVEY_ABORTED);
  EXPECT_EQ(static_cast<int>(StatusCode::kTimeout), COVEY_TIMEOUT);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnsupported), COVEY_UNSUPPORTED);
  EXPECT_EQ(static_cast<int>(StatusCode::kExhausted), COVEY_EXHAUSTED);
  EXPECT_EQ(static_cast<int>(StatusCode::kForked), COVEY_FORKED);
  EXPECT_EQ(static_cast<int>(StatusCode::kInternal), COVEY_INTERNAL);
  EXPECT_EQ(static_cast<int>(StatusCode::kNotFinite), COVEY_NOT_FINITE);
}

TEST(Status, CopiesAreIndependent) {
  Status a = Status::Aborted("rank 3 died", Rank{3});
  Status b = a;
  EXPECT_EQ(a, b);
  a = Status::Ok();
  EXPECT_TRUE(a.ok());
  EXPECT_EQ(b.ToString(), "aborted: rank 3 died (peer 3)");
  Status& alias = b;
  b = alias;
  EXPECT_EQ(b.peer(), Rank{3});
  const Status c = std::move(b);
  EXPECT_EQ(c.message(), "rank 3 died");
  EXPECT_FALSE(c == a);
}

Status Twice(int* calls, const Status& first) {
  RETURN_IF_ERROR(first);
  ++*calls;
  return Status::Ok();
}

TEST(Status, ReturnIfErrorLeavesOnlyOnError) {
  int calls = 0;
  EXPECT_TRUE(Twice(&calls, Status::Ok()).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Twice(&calls, Status::Timeout("late")).message(), "late");
  EXPECT_EQ(calls, 1);
}

TEST(Status, ErrnoHasText) { EXPECT_EQ(ErrnoText(ENOSPC), "No space left on device"); }

TEST(CheckDeathTest, PrintsPlaceConditionAndText) {
  const int one = 1;
  EXPECT_DEATH(CHECK(one == 2, "one is not two"),
               "status_test.cc:[0-9]+: CHECK failed: one == 2: one is not two");
  EXPECT_DEATH(CHECK(one == 3), "CHECK failed: one == 3\n");
  CHECK(one == 1, "holds");
}

TEST(CheckDeathTest, AFailureNeedsACodeAndAMessage) {
  EXPECT_DEATH(Status(StatusCode::kOk, "m"), "OK is made with");
  EXPECT_DEATH((void)Status::Internal(""), "explains itself");
}

}  // namespace
}  // namespace covey
