// A rank that trains through the C API: a model of three parameters, plain SGD.
#ifndef COVEY_TESTS_CONTRACT_TRAINER_ADAPTER_H_
#define COVEY_TESTS_CONTRACT_TRAINER_ADAPTER_H_

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/api/covey_trainer.h"
#include "tests/contract/parsed_method.h"

namespace covey {

inline constexpr int64_t kCounts[] = {1000, 70000, 3};
inline constexpr covey_dtype kTypes[] = {COVEY_FLOAT32, COVEY_FLOAT64, COVEY_FLOAT32};

// Whole numbers, whose sums and halves are exact.
inline double GradientOf(int rank, int64_t step) {
  return static_cast<double>((rank + 1) * 16 + step * 4);
}

// One rank: plain SGD with rate 1.
class Adapter {
 public:
  Adapter(int rank, covey_runtime* runtime) : rank_(rank), runtime_(runtime) {
    for (size_t i = 0; i < 3; ++i) model.emplace_back(static_cast<size_t>(kCounts[i]), 1.0);
  }
  Adapter(const Adapter&) = delete;
  ~Adapter() { covey_trainer_close(runtime_, trainer); }

  covey_code Open(const char* method, const int64_t* counts = kCounts,
                  const covey_dtype* types = kTypes) {
    const ParsedMethod parsed(method, &error);
    if (parsed.code != COVEY_OK) return parsed.code;
    covey_trainer_config config = COVEY_INIT(covey_trainer_config);
    config.name = "test";
    config.method = parsed.get();
    config.op = COVEY_AVERAGE;
    config.num_hypers = 1;
    config.end = end;
    config.num_spans = 3;
    config.dtypes = types;
    config.counts = counts;
    config.num_state = kept.empty() && lists == nullptr ? 0 : -1;
    config.in_place = in_place ? 1 : 0;
    config.copies = copies ? 1 : 0;
    const covey_code code = covey_trainer_open(runtime_, &config, &trainer, &error);
    if (code != COVEY_OK || !in_place) return code;
    const covey_code found = covey_trainer_model(runtime_, trainer, model_, &error);
    if (found == COVEY_OK && model_[0] != nullptr) Show();
    return found;
  }

  // With the gradient of `step`. COVEY_TIMEOUT: waits no longer than timeout_ns.
  covey_code Step(int64_t step, const char* unfit = nullptr, int64_t timeout_ns = -1) {
    gradient_ = GradientOf(rank_, step);
    const double rate = 1;
    covey_step given = COVEY_INIT(covey_step);
    given.unfit = unfit;
    given.hypers = &rate;
    const covey_code code = covey_trainer_submit(runtime_, trainer, &given, &error);
    return code == COVEY_OK ? Run(timeout_ns) : code;
  }
  covey_code BeginPass() {
    const covey_code code = covey_trainer_begin_pass(runtime_, trainer, &error);
    return code == COVEY_OK ? Run(-1) : code;
  }
  covey_code Finish(int32_t strict = 1) {
    const covey_code code = covey_trainer_finish(runtime_, trainer, strict, &error);
    return code == COVEY_OK ? Run(-1) : code;
  }
  covey_code Settle() {
    const covey_code code = covey_trainer_settle(runtime_, trainer, &error);
    return code == COVEY_OK ? Run(-1) : code;
  }
  // `to`: three spans, or null. The answer is in `seen`.
  covey_code Peek(int rank, void* const* to) {
    seen = COVEY_INIT(covey_seen);
    return covey_trainer_peek(runtime_, trainer, rank, to, &seen, &error);
  }
  covey_code Run(int64_t timeout_ns) {
    for (;;) {
      covey_action action = COVEY_INIT(covey_action);
      const covey_code code = covey_trainer_next(runtime_, trainer, timeout_ns, &action, &error);
      last = action.verb;
      if (action.verb == COVEY_DONE || action.verb == COVEY_PENDING) return code;
      if (action.verb == COVEY_UPDATE || action.verb == COVEY_COLLECT_GRADIENTS) {
        EXPECT_EQ(covey_trainer_gradients(runtime_, trainer, gradients_, &error), COVEY_OK);
      }
      if (action.verb == COVEY_COLLECT_MODEL || action.verb == COVEY_LOAD_MODEL) {
        EXPECT_EQ(covey_trainer_model(runtime_, trainer, model_, &error), COVEY_OK);
      }
      if (action.verb == COVEY_UPDATE) Update(action.hypers[0]);
      if (action.verb == COVEY_UPDATE && in_place && model_[0] != nullptr) Show();
      if (action.verb == COVEY_PACK) Pack();
      if (action.verb == COVEY_UNPACK) Unpack(action);
      if (action.verb == COVEY_COLLECT_GRADIENTS)
        ForEach(gradients_, [&](size_t, size_t) { return gradient_; });
      if (action.verb == COVEY_COLLECT_MODEL && !in_place) Show();
      if (action.verb == COVEY_LOAD_MODEL) Load();
      if (action.verb == COVEY_LIST_STATE) lists != nullptr ? lists() : List();
      if (action.verb == COVEY_LOAD_STATE && loads != nullptr) loads();
      if (within) within(action.verb);
      EXPECT_EQ(covey_trainer_ack(runtime_, trainer, action.number, 1, &error), COVEY_OK);
      if (action.verb == leaves_after) {
        leaves_after = COVEY_DONE;
        return COVEY_ABORTED;
      }
    }
  }
  covey_position Position() {
    covey_position position = COVEY_INIT(covey_position);
    EXPECT_EQ(covey_trainer_position(runtime_, trainer, &position, &error), COVEY_OK);
    return position;
  }

  // Copies of the arrays that the method keeps, and back.
  std::vector<std::vector<char>> State() {
    std::vector<std::vector<char>> arrays;
    void* address = nullptr;
    int64_t bytes = 0;
    for (int32_t i = 0; covey_trainer_state(runtime_, trainer, i, &address, &bytes); ++i)
      arrays.emplace_back(static_cast<char*>(address), static_cast<char*>(address) + bytes);
    return arrays;
  }
  void PutState(const std::vector<std::vector<char>>& arrays) {
    void* address = nullptr;
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_NE(covey_trainer_state(runtime_, trainer, static_cast<int32_t>(i), &address, nullptr),
                nullptr);
      std::memcpy(address, arrays[i].data(), arrays[i].size());
    }
  }

  std::string Stats() {
    char json[1024];
    EXPECT_LT(covey_trainer_stats(runtime_, trainer, json, sizeof(json)), sizeof(json));
    return json;
  }

  covey_trainer trainer = 0;
  int64_t end = 0;                         // before Open
  bool in_place = false;                   // the same: the model is also where the trainer has it
  bool copies = false;                     // the same: it copies its model for others
  std::function<void(covey_verb)> within;  // is called before each acknowledgement
  covey_error error = COVEY_INIT(covey_error);
  covey_verb last = COVEY_DONE;
  covey_verb leaves_after = COVEY_DONE;  // Run() ends once after this one
  covey_seen seen = COVEY_INIT(covey_seen);
  int packed = 0, unpacked = 0;
  std::vector<std::vector<double>> kept;  // by the optimizer
  std::function<void()> lists, loads;     // instead of `kept`, before Open
  std::vector<std::vector<double>> model;

 private:
  template <typename Value>
  static void ForEach(void* const* spans, Value value) {
    for (size_t i = 0; i < 3; ++i)
      for (size_t at = 0; at < static_cast<size_t>(kCounts[i]); ++at) {
        if (kTypes[i] == COVEY_FLOAT32)
          static_cast<float*>(spans[i])[at] = static_cast<float>(value(i, at));
        else
          static_cast<double*>(spans[i])[at] = value(i, at);
      }
  }
  static double At(void* const* spans, size_t i, size_t at) {
    return kTypes[i] == COVEY_FLOAT32 ? static_cast<double>(static_cast<float*>(spans[i])[at])
                                      : static_cast<double*>(spans[i])[at];
  }
  void Update(double rate) {
    for (size_t i = 0; i < 3; ++i)
      for (size_t at = 0; at < model[i].size(); ++at) model[i][at] -= rate * At(gradients_, i, at);
  }
  void Pack() {
    const void* parts[3];
    int64_t lengths[3];
    for (size_t i = 0; i < 3; ++i) {
      parts[i] = model[i].data();
      lengths[i] = kCounts[i] * static_cast<int64_t>(sizeof(double));
    }
    EXPECT_EQ(covey_trainer_give(runtime_, trainer, parts, lengths, 3, &error), COVEY_OK);
    ++packed;
  }
  void List() {
    std::vector<covey_state_array> arrays;
    for (std::vector<double>& array : kept)
      arrays.push_back({.struct_size = sizeof(covey_state_array),
                        .data = array.data(),
                        .dtype = COVEY_FLOAT64,
                        .op = COVEY_AVERAGE,
                        .count = static_cast<int64_t>(array.size())});
    EXPECT_EQ(covey_trainer_list(runtime_, trainer, arrays.data(),
                                 static_cast<int32_t>(arrays.size()), &error),
              COVEY_OK);
  }
  void Unpack(const covey_action& action) {
    const auto* from = static_cast<const double*>(action.image);
    for (std::vector<double>& parameter : model) {
      parameter.assign(from, from + parameter.size());
      from += parameter.size();
    }
    EXPECT_EQ(reinterpret_cast<const char*>(from) - static_cast<const char*>(action.image),
              action.length_bytes);
    ++unpacked;
  }
  // The model, where the trainer has it.
  void Show() {
    ForEach(model_, [&](size_t i, size_t at) { return model[i][at]; });
  }
  void Load() {
    for (size_t i = 0; i < 3; ++i)
      for (size_t at = 0; at < model[i].size(); ++at) model[i][at] = At(model_, i, at);
  }

  int rank_;
  covey_runtime* runtime_;
  double gradient_ = 0;
  void* gradients_[3] = {};
  void* model_[3] = {};
};

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_TRAINER_ADAPTER_H_
