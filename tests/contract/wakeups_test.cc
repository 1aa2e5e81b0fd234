// Wake-ups within one process and between processes: what sleeps is rung.
//
// With recheck=3600s no thread looks by itself, and dead ranks are looked for every three minutes:
// a wake-up that is lost hangs the test until its time limit. Ranks are threads over real shared
// memory, with engine threads and futexes.
#include <gtest/gtest.h>

#include <semaphore>

#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr const char* kNobodyLooks = "recheck=3600s\nstall_warning=3600s";

void Allreduce(covey_runtime* runtime, const std::string& name, std::vector<float>* data) {
  covey_error error = COVEY_INIT(covey_error);
  FloatAllreduce op(name.c_str(), data->data(), static_cast<int64_t>(data->size()));
  covey_handle handle = 0;
  ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
  ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
  covey_release(runtime, handle);
}

// An operation that no thread waits for in the runtime: its callback releases `ended`.
class InTheBackground {
 public:
  InTheBackground(covey_runtime* runtime, const char* name, int64_t elems)
      : runtime_(runtime), data_(static_cast<size_t>(elems), 1.0f) {
    FloatAllreduce op(name, data_.data(), elems);
    op.request.context = &ended_;
    op.request.callback = [](void* context, covey_handle, const covey_error* error) {
      EXPECT_EQ(error->code, COVEY_OK) << error->message;
      static_cast<std::binary_semaphore*>(context)->release();
    };
    covey_error error = COVEY_INIT(covey_error);
    EXPECT_EQ(covey_submit(runtime_, &op.request, &handle_, &error), COVEY_OK) << error.message;
  }
  void Await(float expected) {
    ended_.acquire();
    covey_release(runtime_, handle_);
    for (const float x : data_) ASSERT_EQ(x, expected);
  }

 private:
  covey_runtime* runtime_;
  std::vector<float> data_;
  std::binary_semaphore ended_{0};
  covey_handle handle_ = 0;
};

class WakeupsTest : public testing::TestWithParam<int> {};

TEST_P(WakeupsTest, OfBlockingOperations) {
  RunRanks(GetParam(), kNobodyLooks, [](int, covey_runtime*& runtime) {
    std::vector<float> small(8, 0.0f), large(40000, 0.0f);
    for (int i = 0; i < 300; ++i) {
      Allreduce(runtime, "small", &small);
      if (i % 10 == 0) Allreduce(runtime, "large", &large);
    }
  });
}

TEST_P(WakeupsTest, OfOperationsThatEndInTheBackground) {
  RunRanks(GetParam(), kNobodyLooks, [](int, covey_runtime*& runtime) {
    for (int i = 0; i < 100; ++i) {
      InTheBackground(runtime, "small", 8).Await(static_cast<float>(GetParam()));
      InTheBackground(runtime, "large", 40000).Await(static_cast<float>(GetParam()));
    }
  });
}

// Two waiters claim the baton in turn, so that the engine thread gives way to them, and leave
// together while an operation that neither waits for is under way.
TEST_P(WakeupsTest, OfWhatWaitersLeaveBehind) {
  RunRanks(GetParam(), kNobodyLooks, [](int, covey_runtime*& runtime) {
    constexpr int kRounds = 300;
    std::barrier round(3);
    const auto small = [&](const char* name) {
      std::vector<float> data(8, 0.0f);
      for (int i = 0; i < kRounds; ++i) {
        round.arrive_and_wait();
        for (int k = 0; k < 3; ++k) Allreduce(runtime, name, &data);
        round.arrive_and_wait();
      }
    };
    std::thread one(small, "one"), other(small, "other");
    for (int i = 0; i < kRounds; ++i) {
      round.arrive_and_wait();
      InTheBackground large(runtime, "large", 1 << 18);
      round.arrive_and_wait();
      large.Await(static_cast<float>(GetParam()));
    }
    one.join();
    other.join();
  });
}

// Each occurrence of a name that changes its shape is agreed anew, over mailboxes.
TEST_P(WakeupsTest, OfMessagesToTheCoordinator) {
  RunRanks(GetParam(), kNobodyLooks, [](int, covey_runtime*& runtime) {
    for (int i = 1; i <= 100; ++i) {
      std::vector<float> data(static_cast<size_t>(i), 0.0f);
      Allreduce(runtime, "grows", &data);
      InTheBackground(runtime, "grows too", i).Await(static_cast<float>(GetParam()));
    }
  });
}

// The baton is taken from whoever drives, or sleeps with it.
TEST_P(WakeupsTest, OfThreadsThatAskForMemory) {
  RunRanks(GetParam(), kNobodyLooks, [](int, covey_runtime*& runtime) {
    std::atomic<bool> over{false};
    std::thread other([&] {
      covey_error error = COVEY_INIT(covey_error);
      while (!over.load()) {
        void* memory = nullptr;
        ASSERT_EQ(covey_arena_alloc(runtime, 100, &memory, &error), COVEY_OK) << error.message;
        covey_arena_free(memory);
      }
    });
    std::vector<float> data(8, 0.0f);
    for (int i = 0; i < 200; ++i) Allreduce(runtime, "small", &data);
    over.store(true);
    other.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WakeupsTest, testing::Values(1, 2, 3),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

}  // namespace
}  // namespace covey
