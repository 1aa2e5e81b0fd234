// Goal: a handle may be waited for, looked at and released by several threads at once; none of them
// ever meets the operation that comes after it in its place.
// Method: rank 0 releases each handle as soon as it has ended and submits the next operation, in
// whose memory the last one was. Rank 1 begins that only when the other thread of rank 0 is back: a
// thread that has taken the next operation for its own waits for ever.
#include <gtest/gtest.h>

#include "core/api/covey_waiting.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int kRounds = 200;

covey_handle Submit(covey_runtime* runtime, float* data) {
  covey_error error = COVEY_INIT(covey_error);
  FloatAllreduce op("x", data, 1);
  covey_handle handle = 0;
  EXPECT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
  return handle;
}

void Wait(covey_runtime* runtime, covey_handle handle) {
  covey_error error = COVEY_INIT(covey_error);
  const covey_code code = covey_wait(runtime, handle, -1, &error);
  if (code == COVEY_OK) return;
  EXPECT_EQ(code, COVEY_INVALID_ARGUMENT) << error.message;
  EXPECT_NE(std::string(error.message).find("released"), std::string::npos) << error.message;
}

void Look(covey_runtime* runtime, covey_handle handle) {
  covey_error error = COVEY_INIT(covey_error);
  covey_tensor result = COVEY_INIT(covey_tensor);
  int32_t ranks[2] = {};
  while (covey_poll(runtime, handle) == 0) {
    EXPECT_NE(covey_result(runtime, handle, 0, &result, nullptr, &error), COVEY_OK);
    EXPECT_NE(covey_result_take(runtime, handle, 0, &result, nullptr, &error), COVEY_OK);
    EXPECT_LE(covey_awaited(runtime, handle, ranks, 2), 1);
    sched_yield();  // Else it takes the processor from those that end the operation.
  }
}

struct Use {
  const char* name;
  void (*function)(covey_runtime*, covey_handle);
};

class HandlesTest : public testing::TestWithParam<Use> {};

TEST_P(HandlesTest, AreReleasedWhileAnotherThreadUsesThem) {
  std::barrier round(3);
  RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
    float data = 1;
    if (rank == 1) {
      for (int i = 0; i < kRounds; ++i) {
        round.arrive_and_wait();
        // Until the others have fallen asleep, in some of the rounds.
        for (int yields = 0; yields < i; ++yields) sched_yield();
        const covey_handle handle = Submit(runtime, &data);
        Wait(runtime, handle);
        covey_release(runtime, handle);
        round.arrive_and_wait();
      }
      return;
    }
    std::atomic<covey_handle> current{Submit(runtime, &data)};
    std::thread other([&] {
      for (int i = 0; i < kRounds; ++i) {
        const covey_handle handle = current.load();
        round.arrive_and_wait();
        GetParam().function(runtime, handle);
        round.arrive_and_wait();
      }
    });
    for (int i = 0; i < kRounds; ++i) {
      round.arrive_and_wait();
      Wait(runtime, current.load());
      covey_release(runtime, current.load());
      if (i + 1 < kRounds) current.store(Submit(runtime, &data));
      round.arrive_and_wait();
    }
    other.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Each, HandlesTest,
                         testing::Values(Use{"wait", Wait}, Use{"release", covey_release},
                                         Use{"look", Look}),
                         [](const auto& each) { return each.param.name; });

// Rank 1 begins when the other is inside covey_release, as far as anybody can tell.
TEST(HandlesEndTest, ReleaseWaitsForWhatIsInFlight) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> releases{false};
    RunRanks(2, "", [&](int rank, covey_runtime*& runtime) {
      float data = 1;
      while (rank == 1 && !releases.load()) sched_yield();
      for (int yields = 0; rank == 1 && yields < 20 * i; ++yields) sched_yield();
      const covey_handle handle = Submit(runtime, &data);
      releases.store(true);
      covey_release(runtime, handle);
      EXPECT_EQ(data, 2.0f) << "it is the caller's again";
    });
  }
}

covey_config ConfigOf(int rank, int fd) {
  return {.struct_size = sizeof(covey_config),
          .rank = rank,
          .size = 2,
          .shm_fd = fd,
          .settings = "local_size=2\nrecheck=3600s"};
}

// The runtime of the process, so that a call that comes after its end is no mistake.
TEST(HandlesEndTest, AWaitThatAShutdownEndsSaysSo) {
  for (int i = 0; i < 20; ++i) {
    covey_error error = COVEY_INIT(covey_error);
    const int fd = covey_job_create(2, &error);
    ASSERT_GE(fd, 0) << error.message;
    covey_runtime* peer = nullptr;
    std::thread other([&] {
      const covey_config config = ConfigOf(1, fd);
      EXPECT_EQ(covey_runtime_new(&config, &peer, nullptr), COVEY_OK);
    });
    const covey_config config = ConfigOf(0, fd);
    ASSERT_EQ(covey_init(&config, &error), COVEY_OK) << error.message;
    other.join();
    float data = 1;
    const covey_handle handle = Submit(nullptr, &data);
    std::atomic<bool> waits{false};
    std::thread waiter([&] {
      covey_error why = COVEY_INIT(covey_error);
      waits.store(true);
      const covey_code code = covey_wait(nullptr, handle, -1, &why);
      EXPECT_TRUE(code == COVEY_ABORTED || code == COVEY_NOT_INITIALIZED) << why.message;
    });
    while (!waits.load()) sched_yield();
    for (int yields = 0; yields < 50 * i; ++yields) sched_yield();
    EXPECT_EQ(covey_shutdown(&error), COVEY_OK) << error.message;
    waiter.join();
    covey_runtime_free(peer);
    close(fd);
  }
}

}  // namespace
}  // namespace covey
