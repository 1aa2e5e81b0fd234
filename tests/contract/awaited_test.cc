// covey_awaited names the members that an operation waits for, whoever asks and whether or not the
// members have agreed about the operation before; and only while it is in flight. covey_lost names
// the ranks that have left.
#include "core/api/covey_waiting.h"

#include <algorithm>
#include <barrier>

#include "tests/contract/threads.h"

namespace covey {
namespace {

constexpr int kSize = 3;

std::vector<int32_t> Awaited(covey_runtime* runtime, covey_handle handle) {
  std::vector<int32_t> ranks(kSize);
  const int count = covey_awaited(runtime, handle, ranks.data(), kSize);
  ranks.resize(static_cast<size_t>(std::max(count, 0)));
  return ranks;
}

// Asks until somebody is named; a hang is the test's own time limit.
std::vector<int32_t> AskUntilNamed(covey_runtime* runtime, covey_handle handle) {
  for (;;) {
    const std::vector<int32_t> ranks = Awaited(runtime, handle);
    if (!ranks.empty()) return ranks;
    std::this_thread::yield();
  }
}

std::vector<int32_t> Lost(covey_runtime* runtime) {
  std::vector<int32_t> ranks(kSize);
  const int count = covey_lost(runtime, ranks.data(), kSize);
  ranks.resize(static_cast<size_t>(std::max(count, 0)));
  return ranks;
}

// Also by a rank that waits for nothing.
TEST(LostTest, NamesWhoHasLeft) {
  std::barrier seen(kSize);
  RunRanks(kSize, "recheck=20ms", [&](int rank, covey_runtime*& runtime) {
    EXPECT_EQ(Lost(runtime), std::vector<int32_t>{});
    EXPECT_EQ(covey_lost(runtime, nullptr, 0), 0);
    seen.arrive_and_wait();
    std::vector<int32_t> left;
    for (const int leaving : {1, 0}) {
      left.insert(left.begin(), leaving);
      if (rank == leaving) {
        covey_runtime_free(runtime);
        runtime = nullptr;
      }
      while (rank == 2 && Lost(runtime) != left) std::this_thread::yield();
      seen.arrive_and_wait();
    }
  });
}

class AwaitedTest : public testing::TestWithParam<int> {};

// `late` comes when the others have heard that it is awaited: the first time, when the operation
// has to be agreed about, and once more.
TEST_P(AwaitedTest, NamesWhoHasNotCome) {
  const int late = GetParam();
  std::barrier heard(kSize);
  RunRanks(kSize, "", [&](int rank, covey_runtime*& runtime) {
    for (const char* name : {static_cast<const char*>(nullptr), "named"}) {
      for (int round = 0; round < 2; ++round) {
        covey_error error = COVEY_INIT(covey_error);
        float value = 1;
        FloatAllreduce op(name, &value, 1);
        covey_handle handle = 0;
        if (rank == late) heard.arrive_and_wait();
        ASSERT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
        if (rank != late) {
          std::vector<int32_t> named = AskUntilNamed(runtime, handle);
          while (named.size() > 1) named = AskUntilNamed(runtime, handle);
          EXPECT_EQ(named, std::vector<int32_t>{late});
          heard.arrive_and_wait();
        }
        ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
        EXPECT_EQ(value, kSize);
        EXPECT_EQ(covey_awaited(runtime, handle, nullptr, 0), 0);
        covey_release(runtime, handle);
        EXPECT_EQ(covey_awaited(runtime, handle, nullptr, 0), -1);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Late, AwaitedTest, testing::Range(0, kSize));

}  // namespace
}  // namespace covey
