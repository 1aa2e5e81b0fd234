// Goal: the result of an allgather that was taken outlives its handle and its runtime, and is freed
// exactly once; one that was not taken goes with its handle.
// Method: real shared memory, ranks as threads. AddressSanitizer sees a use after the end, a second
// free and a leak.
#include <gtest/gtest.h>

#include "tests/contract/threads.h"

namespace covey {
namespace {

covey_handle Gathered(covey_runtime* runtime, float* data, int64_t elems) {
  covey_error error = COVEY_INIT(covey_error);
  FloatAllreduce op("x", data, elems);
  op.request.kind = COVEY_ALLGATHER;
  covey_handle handle = 0;
  EXPECT_EQ(covey_submit(runtime, &op.request, &handle, &error), COVEY_OK) << error.message;
  EXPECT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
  return handle;
}

TEST(ResultTest, OutlivesHandleAndRuntimeOnceTaken) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    std::vector<float> mine(static_cast<size_t>(1000 + rank), static_cast<float>(rank + 1));
    covey_error error = COVEY_INIT(covey_error);
    const covey_handle handle = Gathered(runtime, mine.data(), static_cast<int64_t>(mine.size()));
    covey_tensor result = COVEY_INIT(covey_tensor);
    int64_t rows[2] = {0, 0};
    ASSERT_EQ(covey_result_take(runtime, handle, 0, &result, rows, &error), COVEY_OK);
    EXPECT_EQ(result.shape[0], 2001);
    EXPECT_EQ(rows[1], 1001);
    auto* data = static_cast<float*>(result.data);
    covey_release(runtime, handle);
    covey_runtime_free(runtime);
    runtime = nullptr;
    for (int i = 0; i < 2001; ++i) ASSERT_EQ(data[i], i < 1000 ? 1.0f : 2.0f) << i;
    data[0] = 7;
    covey_free(data);
  });
}

TEST(ResultTest, IsTakenOnce) {
  RunRanks(1, "", [](int, covey_runtime*& runtime) {
    float value = 3;
    covey_error error = COVEY_INIT(covey_error);
    const covey_handle handle = Gathered(runtime, &value, 1);
    covey_tensor result = COVEY_INIT(covey_tensor);
    ASSERT_EQ(covey_result(runtime, handle, 0, &result, nullptr, &error), COVEY_OK);
    const void* before = result.data;
    ASSERT_EQ(covey_result_take(runtime, handle, 0, &result, nullptr, &error), COVEY_OK);
    EXPECT_EQ(result.data, before) << "copied";
    covey_free(result.data);
    for (const auto function : {covey_result, covey_result_take}) {
      EXPECT_EQ(function(runtime, handle, 0, &result, nullptr, &error), COVEY_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.message).find("was taken before"), std::string::npos);
    }
    covey_release(runtime, handle);
    EXPECT_EQ(covey_result_take(runtime, handle, 0, &result, nullptr, &error),
              COVEY_INVALID_ARGUMENT);
    covey_free(nullptr);
  });
}

TEST(ResultTest, AnEmptyOneIsTakenToo) {
  RunRanks(2, "", [](int, covey_runtime*& runtime) {
    covey_error error = COVEY_INIT(covey_error);
    const covey_handle handle = Gathered(runtime, nullptr, 0);
    covey_tensor result = COVEY_INIT(covey_tensor);
    ASSERT_EQ(covey_result_take(runtime, handle, 0, &result, nullptr, &error), COVEY_OK);
    EXPECT_EQ(result.shape[0], 0);
    ASSERT_NE(result.data, nullptr);
    covey_free(result.data);
    covey_release(runtime, handle);
  });
}

TEST(ResultTest, GoesWithItsHandleWhenNotTaken) {
  RunRanks(2, "", [](int, covey_runtime*& runtime) {
    float value = 3;
    covey_release(runtime, Gathered(runtime, &value, 1));
    Gathered(runtime, &value, 1);  // never released: the runtime frees it
  });
}

}  // namespace
}  // namespace covey
