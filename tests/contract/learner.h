// A rank of the tests of rounds of models, over the C API.
#ifndef COVEY_TESTS_CONTRACT_LEARNER_H_
#define COVEY_TESTS_CONTRACT_LEARNER_H_

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/api/covey_rounds.h"
#include "core/partial/groups.h"
#include "tests/contract/parsed_method.h"

namespace covey {

class Learner {
 public:
  static constexpr int64_t kCounts[2] = {100'000, 5};  // of which the first has several tiles

  Learner(covey_runtime* runtime, const char* method, covey_op op = COVEY_AVERAGE)
      : runtime_(runtime), floats(kCounts[0]), doubles(kCounts[1]) {
    const covey_dtype types[2] = {COVEY_FLOAT32, COVEY_FLOAT64};
    covey_rounds_config config = COVEY_INIT(covey_rounds_config);
    config.name = "models";
    const ParsedMethod parsed(method, &error);
    code = parsed.code;
    if (code != COVEY_OK) return;
    config.method = parsed.get();
    config.op = op;
    config.num_spans = 2;
    config.dtypes = types;
    config.counts = kCounts;
    code = covey_rounds_open(runtime, &config, &rounds, &error);
  }
  Learner(const Learner&) = delete;
  ~Learner() { covey_rounds_close(runtime_, rounds); }

  void Set(double value) {
    for (size_t i = 0; i < floats.size(); ++i)
      floats[i] = static_cast<float>(value + static_cast<double>(i % 5));
    for (double& element : doubles) element = value;
  }
  int64_t Publish() {
    void* spans[2];
    EXPECT_EQ(covey_rounds_spans(runtime_, rounds, spans, &error), COVEY_OK) << error.message;
    std::memcpy(spans[0], floats.data(), floats.size() * sizeof(float));
    std::memcpy(spans[1], doubles.data(), doubles.size() * sizeof(double));
    int64_t step = 0;
    EXPECT_EQ(covey_rounds_publish(runtime_, rounds, nullptr, &step, &error), COVEY_OK);
    return step;
  }
  covey_code Merge(int64_t version) {
    void* spans[2] = {floats.data(), doubles.data()};
    return covey_rounds_merge(runtime_, rounds, version, spans, &merge, &error);
  }
  // A step; the model is what it becomes.
  void Step() {
    const int64_t step = Publish();
    ASSERT_EQ(covey_rounds_wait(runtime_, rounds, step, -1, &error), COVEY_OK) << error.message;
    ASSERT_EQ(Merge(step), COVEY_OK) << error.message;
    ASSERT_GE(merge.step, step);
    if (merge.version == step) {
      ASSERT_EQ(floats[0], floats[floats.size() - 5]) << "the last shard is another version's";
    }
  }
  covey_code Finish(int64_t timeout_ns = -1) {
    return covey_rounds_finish(runtime_, rounds, timeout_ns, &error);
  }
  int64_t executed() { return covey_rounds_executed(runtime_, rounds); }

 private:
  covey_runtime* runtime_;

 public:
  covey_rounds rounds = 0;
  covey_code code;
  covey_error error = COVEY_INIT(covey_error);
  covey_round_merge merge = COVEY_INIT(covey_round_merge);
  std::vector<float> floats;
  std::vector<double> doubles;
};

// Steps of ranks with different models, in which no rank is late: each model becomes the mean of
// its group, in the groups of each version.
inline void ExpectGroupMeans(Learner* learner, int rank, int size, const ModelRule& rule) {
  std::vector<double> models;
  for (int r = 0; r < size; ++r) models.push_back(64.0 * r);
  learner->Set(64.0 * rank);
  for (uint64_t version = 1; version <= 6; ++version) {
    learner->Step();
    const std::vector<int32_t> groups = GroupsOf(rule, size, version);
    std::vector<double> next;
    for (size_t i = 0; i < models.size(); ++i) {
      double sum = 0, count = 0;
      for (size_t j = 0; j < models.size(); ++j)
        if (groups[j] == groups[i]) sum += models[j], ++count;
      next.push_back(sum / count);
      if (static_cast<int>(i) == rank) {
        EXPECT_EQ(learner->merge.count, count);
      }
    }
    models = next;
    EXPECT_EQ(learner->merge.late, 0);
    EXPECT_EQ(learner->doubles[4], models[static_cast<size_t>(rank)]) << "version " << version;
    EXPECT_EQ(learner->floats[3], static_cast<float>(models[static_cast<size_t>(rank)] + 3));
  }
}

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_LEARNER_H_
