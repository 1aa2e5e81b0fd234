// The C API end to end over real shared memory, engine threads and futexes, with ranks as threads.
//
// Goal: no lost wake-up, no callback lost or doubled, nobody hangs when a rank leaves. Under TSan
// this is the test of the memory model. No timing is asserted; a lost wake-up shows as the test's
// own time limit.
#include <gtest/gtest.h>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>

#include "tests/contract/threads.h"

namespace covey {
namespace {

void AllreduceNow(covey_runtime* runtime, const char* name, float* data, int64_t elems) {
  covey_error error = COVEY_INIT(covey_error);
  FloatAllreduce op(name, data, elems);
  covey_handle handle = 0;
  ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
  ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
  covey_release(runtime, handle);
}

class EngineTest : public testing::TestWithParam<int> {};

TEST_P(EngineTest, BlockingOperationsOfAllSizes) {
  const int size = GetParam();
  RunRanks(size, "", [&](int rank, covey_runtime*& runtime) {
    for (int round = 0; round < 60; ++round) {
      for (const int64_t elems : {1, 100, 20000}) {
        std::vector<float> data(static_cast<size_t>(elems));
        for (size_t i = 0; i < data.size(); ++i)
          data[i] = static_cast<float>((1 << rank) + static_cast<int>(i % 7));
        AllreduceNow(runtime, ("x" + std::to_string(elems)).c_str(), data.data(), elems);
        for (size_t i = 0; i < data.size(); ++i)
          ASSERT_EQ(data[i], static_cast<float>((1 << size) - 1 + size * static_cast<int>(i % 7)));
      }
    }
  });
}

TEST_P(EngineTest, ManyInFlightInAnyOrderWithCallbacks) {
  const int size = GetParam();
  std::atomic<int> called{0};
  constexpr int kOps = 64;
  RunRanks(size, "", [&](int rank, covey_runtime*& runtime) {
    covey_error error = COVEY_INIT(covey_error);
    for (int round = 0; round < 10; ++round) {
      std::vector<std::vector<float>> data(kOps,
                                           std::vector<float>(50, static_cast<float>(1 << rank)));
      std::vector<covey_handle> handles(kOps);
      std::vector<std::string> names;
      for (int i = 0; i < kOps; ++i) names.push_back("t" + std::to_string(i));
      for (int k = 0; k < kOps; ++k) {
        const int i = rank % 2 == 0 ? k : kOps - 1 - k;
        FloatAllreduce op(names[static_cast<size_t>(i)].c_str(),
                          data[static_cast<size_t>(i)].data(), 50);
        op.request.context = &called;
        op.request.callback = [](void* context, covey_handle, const covey_error* e) {
          if (e->code == COVEY_OK) static_cast<std::atomic<int>*>(context)->fetch_add(1);
        };
        ASSERT_EQ(covey_submit(runtime, &op.request, &handles[static_cast<size_t>(i)], &error),
                  COVEY_OK)
            << error.message;
      }
      for (covey_handle handle : handles) {
        ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
        covey_release(runtime, handle);
      }
      for (const auto& values : data)
        for (float v : values) ASSERT_EQ(v, static_cast<float>((1 << size) - 1));
    }
  });
  EXPECT_EQ(called.load(), size * kOps * 10);
}

TEST_P(EngineTest, ASteadyLoopSendsNoCoordinatorMessages) {
  RunRanks(GetParam(), "", [&](int, covey_runtime*& runtime) {
    std::vector<float> data(300, 1.0f);
    const auto messages = [&] {
      char json[4096];
      covey_stats(runtime, json, sizeof(json));
      const std::string text(json);
      const std::string key = "\"coordinator_messages\":";
      return std::stoi(text.substr(text.find(key) + key.size()));
    };
    for (int i = 0; i < 3; ++i) AllreduceNow(runtime, "steady", data.data(), 300);
    const int before = messages();
    for (int i = 0; i < 50; ++i) AllreduceNow(runtime, "steady", data.data(), 300);
    EXPECT_EQ(messages(), before);
  });
}

TEST_P(EngineTest, TwoThreadsOfOneRankMaySubmitAndWaitAtOnce) {
  RunRanks(GetParam(), "", [&](int rank, covey_runtime*& runtime) {
    const auto work = [&](const std::string& name) {
      for (int i = 0; i < 40; ++i) {
        std::vector<float> data(33, static_cast<float>(1 << rank));
        AllreduceNow(runtime, name.c_str(), data.data(), 33);
        for (float v : data) ASSERT_EQ(v, static_cast<float>((1 << GetParam()) - 1));
      }
    };
    std::thread other([&] { work("b"); });
    work("a");
    other.join();
  });
}

TEST_P(EngineTest, ArenaTensorsAreReducedInPlaceAndOutliveTheRuntime) {
  const int size = GetParam();
  RunRanks(size, "flat_bytes=0", [&](int rank, covey_runtime*& runtime) {
    covey_error error = COVEY_INIT(covey_error);
    void* memory = nullptr;
    constexpr int64_t kElems = 100000;
    ASSERT_EQ(covey_arena_alloc(runtime, kElems * sizeof(float), &memory, &error), COVEY_OK)
        << error.message;
    auto* data = static_cast<float*>(memory);
    for (int64_t i = 0; i < kElems; ++i) data[i] = static_cast<float>(rank + i % 5);
    AllreduceNow(runtime, "arena", data, kElems);
    char json[4096];
    covey_stats(runtime, json, sizeof(json));
    const char* expected = size > 1 ? "\"exchanges_direct\":1," : "\"exchanges_direct\":0,";
    EXPECT_NE(std::string(json).find(expected), std::string::npos) << json;
    covey_runtime_free(runtime);
    runtime = nullptr;
    for (int64_t i = 0; i < kElems; ++i)
      ASSERT_EQ(data[i], static_cast<float>(size * (size - 1) / 2 + size * (i % 5)));
    covey_arena_free(memory);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineTest, testing::Values(1, 2, 3, 5),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

class LeavingTest : public testing::TestWithParam<int> {};

TEST_P(LeavingTest, ARankThatLeavesIsNamedAndNobodyHangs) {
  const int size = GetParam();
  RunRanks(size, kLooksForLosses, [&](int rank, covey_runtime*& runtime) {
    std::vector<float> data(10, 1.0f);
    AllreduceNow(runtime, "x", data.data(), 10);
    if (rank == size - 1) {
      covey_runtime_free(runtime);
      runtime = nullptr;
      return;
    }
    covey_error error = COVEY_INIT(covey_error);
    FloatAllreduce op("x", data.data(), 10);
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
    EXPECT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_ABORTED);
    EXPECT_EQ(error.peer_rank, size - 1) << error.message;
    EXPECT_NE(std::string(error.message).find("has left"), std::string::npos) << error.message;
    covey_release(runtime, handle);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, LeavingTest, testing::Values(2, 3, 5),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

TEST(LifeTest, AThousandCyclesLeakNoDescriptorAndNoThread) {
  const auto count = [](const char* folder) {
    int entries = 0;
    if (DIR* dir = opendir(folder)) {
      while (readdir(dir) != nullptr) ++entries;
      closedir(dir);
    }
    return entries;
  };
  covey_error error = COVEY_INIT(covey_error);
  ASSERT_EQ(covey_init(nullptr, &error), COVEY_OK) << error.message;
  ASSERT_EQ(covey_shutdown(&error), COVEY_OK);
  const int descriptors = count("/proc/self/fd");
  const int threads = count("/proc/self/task");
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(covey_init(nullptr, &error), COVEY_OK) << error.message;
    float value = 3.0f;
    if (i % 100 == 0) AllreduceNow(nullptr, "x", &value, 1);
    ASSERT_EQ(covey_shutdown(&error), COVEY_OK);
  }
  EXPECT_EQ(count("/proc/self/fd"), descriptors);
  EXPECT_EQ(count("/proc/self/task"), threads);
}

TEST(LifeTest, UseBeforeInitAndAfterShutdownSaysSo) {
  covey_error error = COVEY_INIT(covey_error);
  covey_handle handle = 0;
  float value = 1.0f;
  FloatAllreduce op("x", &value, 1);
  ASSERT_EQ(covey_init(nullptr, &error), COVEY_OK) << error.message;
  ASSERT_EQ(covey_init(nullptr, &error), COVEY_OK)
      << "again with equal arguments: " << error.message;
  const covey_config other = {.struct_size = sizeof(covey_config),
                              .rank = 0,
                              .size = 1,
                              .shm_fd = 0,
                              .settings = "spin=7us"};
  EXPECT_EQ(covey_init(&other, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("spin"), std::string::npos) << error.message;
  ASSERT_EQ(covey_shutdown(&error), COVEY_OK);
  EXPECT_EQ(covey_submit(nullptr, &op.request, &handle, &error), COVEY_NOT_INITIALIZED);
  EXPECT_NE(std::string(error.message).find("shut down"), std::string::npos) << error.message;
}

// Whether a fork wipes memory that asks for it, by which a child knows itself; qemu-user does not.
bool ForkWipes() {
  constexpr size_t kBytes = 4096;
  void* page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(page, kBytes, MADV_WIPEONFORK);
  auto* word = new (page) int(1);
  const pid_t child = fork();
  if (child == 0) _exit(*word);
  int status = -1;
  waitpid(child, &status, 0);
  munmap(page, kBytes);
  return status == 0;
}

TEST(LifeTest, AChildOfForkIsRefusedAndTheParentGoesOn) {
  if (!ForkWipes()) GTEST_SKIP() << "this system lets no fork wipe memory (MADV_WIPEONFORK)";
  covey_error error = COVEY_INIT(covey_error);
  ASSERT_EQ(covey_init(nullptr, &error), COVEY_OK) << error.message;
  const pid_t child = fork();
  if (child == 0) {
    float value = 1.0f;
    FloatAllreduce op("x", &value, 1);
    covey_handle handle = 0;
    const bool refused = covey_submit(nullptr, &op.request, &handle, nullptr) == COVEY_FORKED &&
                         covey_shutdown(nullptr) == COVEY_FORKED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  float value = 4.0f;
  AllreduceNow(nullptr, "x", &value, 1);
  EXPECT_EQ(value, 4.0f);
  ASSERT_EQ(covey_shutdown(&error), COVEY_OK);
}

}  // namespace
}  // namespace covey
