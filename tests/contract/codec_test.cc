// Goal: an allreduce with a codec works through the C API, over real shared memory.
// Method: ranks as threads; small whole numbers, which every codec keeps; the statistics.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/api/covey_values.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

TEST(CodecTest, SumsAndSaysWhatTravelled) {
  for (const char* codec : {"bf16", "bf16@random=1", "fp16", "int8", "int8@block=512"}) {
    SCOPED_TRACE(codec);
    RunRanks(3, "", [codec](int rank, covey_runtime*& runtime) {
      std::vector<float> data(100000);
      for (int round = 0; round < 3; ++round) {
        for (size_t i = 0; i < data.size(); ++i)
          data[i] = i % 16 == 0 ? 127.0f : static_cast<float>((i + static_cast<size_t>(rank)) % 8);
        FloatAllreduce allreduce("gradient", data.data(), static_cast<int64_t>(data.size()));
        allreduce.request.codec = codec;
        covey_error error = COVEY_INIT(covey_error);
        covey_handle handle = 0;
        ASSERT_EQ(covey_submit(runtime, &allreduce.request, &handle, &error), COVEY_OK)
            << error.message;
        ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
        covey_release(runtime, handle);
        for (size_t i = 0; i < data.size(); ++i)
          ASSERT_EQ(data[i],
                    i % 16 == 0 ? 381.0f : static_cast<float>(i % 8 + (i + 1) % 8 + (i + 2) % 8));
      }
      char json[4096];
      covey_stats(runtime, json, sizeof(json));
      EXPECT_NE(std::string(json).find("\"moved_bytes\":1200000"), std::string::npos) << json;
      EXPECT_EQ(std::string(json).find("\"wire_bytes\":1200000"), std::string::npos) << json;
    });
  }
}

// Four ranks on two hosts: of each block the largest is 127 on all, and rank 0 adds 1. The codes of
// contributions keep it; that of a host's sum, whose largest is 254, does not.
TEST(CodecTest, BetweenHostsSumsAreEncodedUnlessResidualsAreFedBack) {
  RunRanks({4, kOverNetwork, 2}, [](int rank, covey_runtime*& runtime) {
    for (const uint32_t feeds_back : {0u, 1u, 0u}) {
      std::vector<float> data(100'000, rank == 0 ? 1.0f : 0.0f);
      for (size_t i = 0; i < data.size(); i += 256) data[i] = 127;
      FloatAllreduce allreduce("gradient", data.data(), static_cast<int64_t>(data.size()));
      allreduce.request.codec = "int8";
      allreduce.request.feeds_back = feeds_back;
      covey_error error = COVEY_INIT(covey_error);
      covey_handle handle = 0;
      ASSERT_EQ(covey_submit(runtime, &allreduce.request, &handle, &error), COVEY_OK);
      ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
      covey_release(runtime, handle);
      for (size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(data[i], i % 256 == 0 ? 508.0f : static_cast<float>(feeds_back)) << i;
    }
  });
}

TEST(CodecTest, RanksThatDifferInErrorFeedbackHearSo) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    std::vector<float> data(100);
    FloatAllreduce allreduce("gradient", data.data(), 100);
    allreduce.request.codec = "int8";
    allreduce.request.feeds_back = rank == 0 ? 1 : 0;
    covey_error error = COVEY_INIT(covey_error);
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime, &allreduce.request, &handle, &error), COVEY_OK);
    EXPECT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_MISMATCH);
    EXPECT_NE(std::string(error.message).find("codecs differ"), std::string::npos) << error.message;
    EXPECT_NE(std::string(error.message).find("int8@block=256 with error feedback"),
              std::string::npos)
        << error.message;
    covey_release(runtime, handle);
  });
}

// What a handle was used for before is forgotten with it.
TEST(CodecTest, TheNextOperationHasNone) {
  RunRanks(2, "", [](int, covey_runtime*& runtime) {
    for (const char* codec : {"int8", ""}) {
      std::vector<float> data(100, 0.001f);
      data[0] = 1000.0f;
      FloatAllreduce allreduce(codec, data.data(), 100);
      allreduce.request.codec = codec;
      covey_error error = COVEY_INIT(covey_error);
      covey_handle handle = 0;
      ASSERT_EQ(covey_submit(runtime, &allreduce.request, &handle, &error), COVEY_OK);
      ASSERT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_OK) << error.message;
      covey_release(runtime, handle);
      EXPECT_EQ(data[1], *codec == '\0' ? 0.002f : 0.0f);
    }
  });
}

TEST(CodecTest, RanksThatDifferHearBothCodecs) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    std::vector<float> data(100);
    FloatAllreduce allreduce("gradient", data.data(), 100);
    allreduce.request.codec = rank == 0 ? "int8" : "int8@block=512";
    covey_error error = COVEY_INIT(covey_error);
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime, &allreduce.request, &handle, &error), COVEY_OK);
    EXPECT_EQ(covey_wait(runtime, handle, -1, &error), COVEY_MISMATCH);
    EXPECT_NE(std::string(error.message).find("int8@block=256"), std::string::npos);
    EXPECT_NE(std::string(error.message).find("int8@block=512"), std::string::npos);
    covey_release(runtime, handle);
  });
}

TEST(CodecTest, CodesByThemselves) {
  std::vector<float> own(3000), near(3000);
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = static_cast<float>(i % 97) / 50 - 1;
    near[i] = own[i] + 0.01f;
  }
  const auto count = static_cast<int64_t>(own.size());
  covey_error error = COVEY_INIT(covey_error);
  const std::pair<const char*, double> kErrors[] = {
      {"bf16", 0.004}, {"fp16", 0.001}, {"int8", 0.004}, {"qsgd", 0.3}, {"lattice@8", 0.001}};
  for (const auto& [codec, bound] : kErrors) {
    int64_t bytes = 0;
    ASSERT_EQ(covey_codec_bytes(codec, count, &bytes, &error), COVEY_OK) << error.message;
    EXPECT_LT(bytes, 3 * count) << codec;
    std::vector<std::byte> codes(static_cast<size_t>(bytes) + 1, std::byte{0x77});
    ASSERT_EQ(covey_codec_encode(codec, own.data(), count, 5, 0.001f, codes.data(), &error),
              COVEY_OK);
    EXPECT_EQ(codes.back(), std::byte{0x77}) << codec;
    std::vector<float> found = near;
    ASSERT_EQ(covey_codec_decode(codec, codes.data(), count, found.data(), &error), COVEY_OK);
    for (size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(found[i], own[i], bound) << codec << i;
  }
  std::vector<std::byte> codes(20'000);
  std::vector<float> far(own.size(), 50);
  ASSERT_EQ(covey_codec_encode("lattice@8", own.data(), count, 5, 0.001f, codes.data(), &error),
            COVEY_OK);
  EXPECT_EQ(covey_codec_decode("lattice@8", codes.data(), count, far.data(), &error),
            COVEY_MISMATCH);
  EXPECT_EQ(covey_codec_encode("lattice@8", own.data(), count, 5, 0, codes.data(), &error),
            COVEY_INVALID_ARGUMENT);
  EXPECT_EQ(covey_codec_encode("int9", own.data(), count, 5, 0, codes.data(), &error),
            COVEY_INVALID_ARGUMENT);
  EXPECT_EQ(covey_codec_decode("int8", nullptr, count, far.data(), &error), COVEY_INVALID_ARGUMENT);
  int64_t bytes = 0;
  EXPECT_EQ(covey_codec_bytes("int8", -1, &bytes, &error), COVEY_INVALID_ARGUMENT);
}

TEST(CodecTest, WhatIsLeftOutIsSaidAndWhatMakesNoSenseRefused) {
  const std::vector<float> own = {127, 0.25f, -3, 0};
  std::vector<float> left(own.size(), 9);
  covey_error error = COVEY_INIT(covey_error);
  const auto count = static_cast<int64_t>(own.size());
  ASSERT_EQ(covey_codec_residual("int8", own.data(), count, left.data(), &error), COVEY_OK);
  EXPECT_EQ(left, (std::vector<float>{0, 0.25f, 0, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ASSERT_EQ(covey_codec_residual("int8", &nan, 1, left.data(), &error), COVEY_OK);
  EXPECT_EQ(left[0], 0) << "an overflow is not remembered";
  EXPECT_EQ(covey_codec_residual("qsgd", own.data(), count, left.data(), &error),
            COVEY_UNSUPPORTED);
  EXPECT_EQ(covey_codec_residual("int8", nullptr, count, left.data(), &error),
            COVEY_INVALID_ARGUMENT);
  EXPECT_EQ(covey_codec_check("qsgd", 0, &error), COVEY_OK);
  EXPECT_EQ(covey_codec_check("bf16@random=1", 1, &error), COVEY_UNSUPPORTED);
  EXPECT_EQ(covey_codec_check("bf16", 1, &error), COVEY_OK);
  EXPECT_EQ(covey_codec_check("gsgd", 0, &error), COVEY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("the nearest is qsgd"), std::string::npos);
  EXPECT_EQ(covey_codec_check(nullptr, 0, &error), COVEY_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace covey
