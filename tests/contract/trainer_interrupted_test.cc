// Steps that an adapter leaves between two calls of the C API, as by a signal: the next call goes
// on, and nothing is lost or done twice. Ranks are threads over real shared memory.
#include <gtest/gtest.h>

#include <string>

#include "core/api/covey_trainer.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

// As by a signal between an acknowledgement and the next action.
TEST(TrainerInterruptedTest, AStepLeftBetweenTwoActionsGoesOn) {
  for (const char* method : {"local:H=2", "eager:admit=all,max_wait=60s", "allreduce"}) {
    RunRanks(2, "", [method](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
      int64_t done = 0;
      for (const covey_verb left : {COVEY_COLLECT_GRADIENTS, COVEY_UPDATE, COVEY_COLLECT_MODEL}) {
        for (int64_t step = 0; step < 2; ++step) {
          adapter.leaves_after = left;
          covey_code code = adapter.Step(step);
          const bool has_ended = adapter.Position().step == ++done;  // That was its last action.
          if (code == COVEY_ABORTED) code = has_ended ? adapter.Run(-1) : adapter.Step(step);
          ASSERT_EQ(code, COVEY_OK) << method << ": " << adapter.error.message;
        }
      }
      adapter.leaves_after = COVEY_LOAD_MODEL;
      covey_code code = adapter.Finish();
      if (code == COVEY_ABORTED) code = adapter.Finish();
      ASSERT_EQ(code, COVEY_OK) << method << ": " << adapter.error.message;
      double expected = 1;
      for (int64_t step = 0; step < 6; ++step)
        expected -= (GradientOf(0, step % 2) + GradientOf(1, step % 2)) / 2;
      EXPECT_EQ(adapter.model[1].front(), expected) << method;
      EXPECT_EQ(adapter.Position().step, 6) << method;
    });
  }
}

// As by a signal before gradients were taken: the next call's count, and whether they are fit.
TEST(TrainerInterruptedTest, GradientsThatWereNotTakenAreForgotten) {
  for (const char* method : {"local:H=9", "eager:admit=all,max_wait=60s", "allreduce"}) {
    RunRanks(2, "", [method](int rank, covey_runtime*& runtime) {
      Adapter adapter(rank, runtime);
      ASSERT_EQ(adapter.Open(method), COVEY_OK) << adapter.error.message;
      covey_error* error = &adapter.error;
      covey_step step = COVEY_INIT(covey_step);
      const double rate = 0.5;
      step.hypers = &rate;
      ASSERT_EQ(covey_trainer_submit(runtime, adapter.trainer, &step, error), COVEY_OK);
      step.unfit = "3 NaN";
      ASSERT_EQ(covey_trainer_submit(runtime, adapter.trainer, &step, error), COVEY_OK);
      EXPECT_EQ(adapter.Run(-1), COVEY_NOT_FINITE) << method;
      EXPECT_EQ(adapter.model[1].front(), 1.0) << method;
      step.unfit = nullptr;
      ASSERT_EQ(covey_trainer_submit(runtime, adapter.trainer, &step, error), COVEY_OK);
      ASSERT_EQ(adapter.Step(0), COVEY_OK) << method << ": " << adapter.error.message;
      const double mean = (GradientOf(0, 0) + GradientOf(1, 0)) / 2;
      const bool is_local = std::string(method).find("local") == 0;
      EXPECT_EQ(adapter.model[1].front(), 1.0 - (is_local ? GradientOf(rank, 0) : mean))
          << method << ": by the rate of that call";
    });
  }
}

}  // namespace
}  // namespace covey
