// Names that are used once are forgotten: what they held is given back, the last costs what the
// first did, and a name that comes again works; names in use are left alone.
//
// Method: counts that covey_stats gives, and no times; ranks as threads over real shared memory.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/contract/threads.h"

namespace covey {
namespace {

int64_t Stat(covey_runtime* runtime, const std::string& key) {
  std::string json(8192, '\0');
  json.resize(covey_stats(runtime, json.data(), json.size()));
  const size_t at = json.find("\"" + key + "\":");
  EXPECT_NE(at, std::string::npos) << key << " is not in " << json;
  return at == std::string::npos ? -1 : std::atoll(json.c_str() + at + key.size() + 3);
}

// Sums of tensors with these names, in flight together.
void SumAll(covey_runtime* runtime, int rank, int size, const std::vector<std::string>& names) {
  covey_error error = COVEY_INIT(covey_error);
  std::vector<float> data(names.size());
  std::vector<covey_handle> handles(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    data[i] = static_cast<float>(rank + 1) * static_cast<float>(i + 1);
    const FloatAllreduce sum(names[i].c_str(), &data[i], 1);
    ASSERT_EQ(covey_submit(runtime, &sum.request, &handles[i], &error), COVEY_OK) << error.message;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_EQ(covey_wait(runtime, handles[i], -1, &error), COVEY_OK) << error.message;
    covey_release(runtime, handles[i]);
    ASSERT_EQ(data[i], static_cast<float>(i + 1) * static_cast<float>(size * (size + 1) / 2));
  }
}

std::string Name(const char* what, int number) { return what + std::to_string(number); }

class NamesTest : public testing::TestWithParam<int> {};

TEST_P(NamesTest, UsedOnceAreForgotten) {
  const int size = GetParam();
  RunRanks(size, "", [size](int rank, covey_runtime*& runtime) {
    constexpr int kSteps = 2000;
    constexpr int kPart = 500;
    int64_t messages_before = 0;
    int64_t messages_early = 0;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kPart) messages_before = Stat(runtime, "coordinator_messages");
      if (step == 2 * kPart)
        messages_early = Stat(runtime, "coordinator_messages") - messages_before;
      if (step == kSteps - kPart) messages_before = Stat(runtime, "coordinator_messages");
      SumAll(runtime, rank, size, {Name("loss", step), Name("accuracy", step), "always"});
    }
    const int64_t messages_late = Stat(runtime, "coordinator_messages") - messages_before;
    EXPECT_LE(messages_late, 2 * messages_early);
    // 4,001 names, of which those of some hundred operations are kept.
    for (const char* key : {"streams", "landing_blocks", "known_names"})
      EXPECT_LT(Stat(runtime, key), 600) << key;
    SumAll(runtime, rank, size, {"loss0", "accuracy7", "always"});
  });
}

TEST_P(NamesTest, InUseAreSoonLeftAlone) {
  const int size = GetParam();
  RunRanks(size, "", [size](int rank, covey_runtime*& runtime) {
    std::vector<std::string> names;
    for (int i = 0; i < 600; ++i) names.push_back(Name("gradient", i));
    int64_t before = 0;
    for (int step = 0; step < 12; ++step) {
      before = Stat(runtime, "coordinator_messages");
      SumAll(runtime, rank, size, names);
    }
    EXPECT_EQ(Stat(runtime, "coordinator_messages"), before) << "a steady step agrees on nothing";
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NamesTest, testing::Values(1, 2, 3),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

}  // namespace
}  // namespace covey
