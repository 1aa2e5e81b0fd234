// Wake-ups within one process and between processes: what sleeps is rung.
//
// No thread looks by itself (threads.h): a wake-up that is lost hangs the test until its time
// limit. Ranks are threads over real shared memory, with engine threads and futexes.
#include <gtest/gtest.h>

#include <semaphore>

#include "tests/contract/threads.h"

namespace covey {
namespace {

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
    size_t wrong = 0;  // a comparison of GoogleTest's takes longer than the sum
    for (const float x : data_) wrong += x != expected ? 1 : 0;
    ASSERT_EQ(wrong, 0u) << "not " << expected;
  }

 private:
  covey_runtime* runtime_;
  std::vector<float> data_;
  std::binary_semaphore ended_{0};
  covey_handle handle_ = 0;
};

class WakeupsTest : public testing::TestWithParam<int> {};

TEST_P(WakeupsTest, OfBlockingOperations) {
  RunRanks(GetParam(), "", [](int, covey_runtime*& runtime) {
    std::vector<float> small(8, 0.0f), large(40000, 0.0f);
    for (int i = 0; i < 300; ++i) {
      Allreduce(runtime, "small", &small);
      if (i % 10 == 0) Allreduce(runtime, "large", &large);
    }
  });
}

TEST_P(WakeupsTest, OfOperationsThatEndInTheBackground) {
  RunRanks(GetParam(), "", [](int, covey_runtime*& runtime) {
    for (int i = 0; i < 100; ++i) {
      InTheBackground(runtime, "small", 8).Await(static_cast<float>(GetParam()));
      InTheBackground(runtime, "large", 40000).Await(static_cast<float>(GetParam()));
    }
  });
}

// Two waiters claim the progress lock in turn, so that the engine thread gives way to them, and
// leave together while an operation that neither waits for is under way.
TEST_P(WakeupsTest, OfWhatWaitersLeaveBehind) {
  RunRanks(GetParam(), "", [](int, covey_runtime*& runtime) {
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

void Yield(int times) {
  for (int i = 0; i < times; ++i) sched_yield();
}

// Two threads: one waits for "late", which rank 0 begins when the other one of each rank has done
// `does_now`. By turns either of them drives, and has fallen asleep when the other one comes.
void OneSleepsAndAnother(covey_runtime* runtime, int rank,
                         const std::function<void(covey_runtime*)>& does_now) {
  for (int i = 0; i < 60; ++i) {
    std::vector<float> late(8, 0.0f);
    if (rank == 0) {
      Yield(60 * i);
      does_now(runtime);
      Allreduce(runtime, "back", &late);
      Allreduce(runtime, "late", &late);
      continue;
    }
    std::thread sleeper([&] {
      Yield(i % 2 == 0 ? 0 : 20 * i);
      Allreduce(runtime, "late", &late);
    });
    Yield(i % 2 == 0 ? 20 * i : 0);
    does_now(runtime);
    std::vector<float> back(8, 0.0f);
    Allreduce(runtime, "back", &back);
    sleeper.join();
  }
}

TEST_P(WakeupsTest, OfAWaiterByWhatAnotherThreadSubmits) {
  RunRanks(GetParam(), "", [](int rank, covey_runtime*& runtime) {
    OneSleepsAndAnother(runtime, rank, [](covey_runtime* own) {
      InTheBackground(own, "now", 8).Await(static_cast<float>(GetParam()));
    });
  });
}

TEST_P(WakeupsTest, OfAWaiterByAnotherThatDrives) {
  RunRanks(GetParam(), "", [](int rank, covey_runtime*& runtime) {
    OneSleepsAndAnother(runtime, rank, [](covey_runtime* own) {
      std::vector<float> data(8, 0.0f);
      Allreduce(own, "now", &data);
    });
  });
}

TEST_P(WakeupsTest, OfAWaiterThatDrivesByACallThatNeedsTheProgressLock) {
  RunRanks(GetParam(), "", [](int rank, covey_runtime*& runtime) {
    OneSleepsAndAnother(runtime, rank, [](covey_runtime* own) {
      char text[256];
      EXPECT_GT(covey_status(own, text, sizeof(text)), 0u);
    });
  });
}

// How many bundles were planned so far.
float Bundles(covey_runtime* runtime) {
  char json[4096];
  covey_stats(runtime, json, sizeof(json));
  const std::string text(json), key = "\"bundles\":";
  return std::stof(text.substr(text.find(key) + key.size()));
}

// Two names that are one bundle from now on: the first of them. New ones each time, because those
// that were found too far apart are not looked at again.
std::string OneOfABundle(covey_runtime* runtime) {
  for (int i = 0;; ++i) {
    const std::string one = "one " + std::to_string(i), other = "other " + std::to_string(i);
    const auto size = static_cast<float>(covey_size(runtime));
    const float before = Bundles(runtime);
    for (int step = 0; step < 20; ++step) {
      InTheBackground first(runtime, one.c_str(), 8), second(runtime, other.c_str(), 8);
      first.Await(size);
      second.Await(size);
      std::vector<float> planned(1, Bundles(runtime) > before ? 1.0f : 0.0f);
      Allreduce(runtime, "planned", &planned);
      if (planned[0] == size) return one;
    }
  }
}

class WakeupsOfBundlesTest : public WakeupsTest {};

// One tensor of a bundle comes alone, and its callback is not waited for in the runtime: it has
// some patience. The thread that drives takes it, and leaves before that is over.
TEST_P(WakeupsOfBundlesTest, OfWhatIsDueLater) {
  std::barrier all(GetParam());
  RunRanks(GetParam(), "", [&](int rank, covey_runtime*& runtime) {
    const char* const names[] = {"late", "later"};
    const auto wait_for = [&](bool second) {
      std::vector<float> data(8, 0.0f);
      Allreduce(runtime, names[second ? 1 : 0], &data);
    };
    for (int i = 0; i < 4; ++i) {
      const std::string name = OneOfABundle(runtime);
      std::thread driver(wait_for, rank == 0);
      Yield(1000);
      all.arrive_and_wait();
      InTheBackground alone(runtime, name.c_str(), 8);
      all.arrive_and_wait();
      wait_for(rank != 0);
      driver.join();
      alone.Await(static_cast<float>(GetParam()));
    }
  });
}

// Each occurrence of a name that changes its shape is agreed anew, over mailboxes.
TEST_P(WakeupsTest, OfMessagesToTheCoordinator) {
  RunRanks(GetParam(), "", [](int, covey_runtime*& runtime) {
    for (int i = 1; i <= 100; ++i) {
      std::vector<float> data(static_cast<size_t>(i), 0.0f);
      Allreduce(runtime, "grows", &data);
      InTheBackground(runtime, "grows too", i).Await(static_cast<float>(GetParam()));
    }
  });
}

// The progress lock is taken from whoever drives, or sleeps with it.
TEST_P(WakeupsTest, OfThreadsThatAskForMemory) {
  RunRanks(GetParam(), "", [](int, covey_runtime*& runtime) {
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
INSTANTIATE_TEST_SUITE_P(Ranks, WakeupsOfBundlesTest, testing::Values(2, 3),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

}  // namespace
}  // namespace covey
