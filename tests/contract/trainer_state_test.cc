// Goal: what the optimizers of all members keep is united by name and averaged, before another part
// of the training follows; lists that do not agree are named on all members.
// Method: the C API, ranks as threads over real shared memory and over a network. Each lists what
// it keeps; whole numbers, whose means are exact.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/api/covey_trainer.h"
#include "tests/contract/round_trainer.h"
#include "tests/contract/threads.h"
#include "tests/contract/trainer_adapter.h"

namespace covey {
namespace {

constexpr const char* kMethod = "local:H=9,then=allreduce@1";  // the first step ends with the state
constexpr int kRanks = 3;

// A rank whose optimizer keeps arrays of float32 and int64, by name.
class Keeper {
 public:
  Keeper(int rank, covey_runtime* runtime) : adapter(rank, runtime), runtime_(runtime) {
    adapter.lists = [this] { EXPECT_EQ(List(Arrays()), COVEY_OK) << adapter.error.message; };
    adapter.loads = [this] { Load(); };
    EXPECT_EQ(adapter.Open(kMethod), COVEY_OK) << adapter.error.message;
  }

  std::vector<covey_state_array> Arrays() {
    std::vector<covey_state_array> arrays;
    for (auto& [name, values] : floats)
      arrays.push_back({.struct_size = sizeof(covey_state_array),
                        .name = name.c_str(),
                        .data = values.data(),
                        .dtype = COVEY_FLOAT32,
                        .op = COVEY_AVERAGE,
                        .count = static_cast<int64_t>(values.size())});
    for (auto& [name, values] : numbers)
      arrays.push_back({.struct_size = sizeof(covey_state_array),
                        .name = name.c_str(),
                        .data = values.data(),
                        .dtype = COVEY_INT64,
                        .op = COVEY_MAX,
                        .count = static_cast<int64_t>(values.size())});
    return arrays;
  }
  covey_code List(const std::vector<covey_state_array>& arrays) {
    return covey_trainer_list(runtime_, adapter.trainer, arrays.data(),
                              static_cast<int32_t>(arrays.size()), &adapter.error);
  }
  // The i-th array of the union, as floating-point numbers.
  bool Listed(int32_t i, std::string* name, std::vector<double>* values) {
    void* data = nullptr;
    covey_dtype dtype = COVEY_UINT8;
    int64_t count = -1;
    const char* found = covey_trainer_listed(runtime_, adapter.trainer, i, &data, &dtype, &count);
    if (found == nullptr) return false;
    *name = found;
    values->clear();
    for (int64_t at = 0; at < count; ++at)
      values->push_back(dtype == COVEY_FLOAT32
                            ? static_cast<double>(static_cast<float*>(data)[at])
                            : static_cast<double>(static_cast<int64_t*>(data)[at]));
    const auto own = floats.find(*name);
    if (own != floats.end() && count > 0) {
      EXPECT_EQ(data, own->second.data()) << "the caller's own memory";
    }
    return true;
  }

  Adapter adapter;
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<int64_t>> numbers;
  std::vector<std::pair<std::string, std::vector<double>>> loaded;  // by COVEY_LOAD_STATE, in order

 private:
  void Load() {
    loaded.clear();
    std::string name;
    std::vector<double> values;
    for (int32_t i = 0; Listed(i, &name, &values); ++i) loaded.emplace_back(name, values);
    EXPECT_FALSE(Listed(-1, &name, &values));
  }
  covey_runtime* runtime_;
};

using Loaded = std::vector<std::pair<std::string, std::vector<double>>>;

class TrainerStateTest : public testing::TestWithParam<const char*> {
 protected:
  static void Run(const std::function<void(int, covey_runtime*)>& body) {
    RunRanks(kRanks, GetParam(), [&](int rank, covey_runtime*& runtime) { body(rank, runtime); });
  }
};

TEST_P(TrainerStateTest, EqualListsAreAveragedInAnyOrder) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    keeper.floats["momentum"] = {static_cast<float>(rank), 6};
    keeper.numbers["steps"] = {rank + 5};
    keeper.adapter.lists = [&] {
      std::vector<covey_state_array> arrays = keeper.Arrays();
      if (rank == 1) std::swap(arrays[0], arrays[1]);
      EXPECT_EQ(keeper.List(arrays), COVEY_OK);
    };
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"momentum", {1, 6}}, {"steps", {kRanks + 4}}}));
    EXPECT_EQ(keeper.floats["momentum"], (std::vector<float>{1, 6}));
    std::string name;
    std::vector<double> values;
    EXPECT_FALSE(keeper.Listed(0, &name, &values)) << "it was acknowledged";
  });
}

TEST_P(TrainerStateTest, WhatAMemberHasNotListedCountsAsZeros) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    if (rank != 1) {
      keeper.floats["momentum"] = {static_cast<float>(rank + 1), 6};
      keeper.numbers["steps"] = {rank + 5};
    }
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"momentum", {4.0f / 3, 4}}, {"steps", {kRanks + 4}}}));
    ASSERT_EQ(keeper.adapter.Step(1), COVEY_OK) << "training goes on";
  });
}

TEST_P(TrainerStateTest, DisjointListsAreUnited) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    const std::string own = "of " + std::to_string(rank);
    keeper.floats[own].assign(static_cast<size_t>(rank) + 1, 3);
    keeper.floats["is here, and \xc3\xa4 too"];
    if (rank == 2) keeper.floats["alone"];
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"alone", {}},
                                     {"is here, and \xc3\xa4 too", {}},
                                     {"of 0", {1}},
                                     {"of 1", {1, 1}},
                                     {"of 2", {1, 1, 1}}}));
  });
}

TEST_P(TrainerStateTest, ListsOfNothingAreEqual) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, Loaded{});
  });
}

TEST_P(TrainerStateTest, AWaitThatIsCutShortGoesOn) {
  std::barrier others(kRanks);
  Run([&](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    keeper.floats["of " + std::to_string(rank)] = {3};
    if (rank > 0) {
      others.arrive_and_wait();
      ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    } else {
      EXPECT_EQ(keeper.adapter.Step(0, nullptr, 0), COVEY_TIMEOUT);
      EXPECT_EQ(keeper.adapter.last, COVEY_PENDING);
      others.arrive_and_wait();
      covey_code code = COVEY_TIMEOUT;
      while (code == COVEY_TIMEOUT) code = keeper.adapter.Run(0);
      ASSERT_EQ(code, COVEY_OK) << keeper.adapter.error.message;
    }
    EXPECT_EQ(keeper.loaded, (Loaded{{"of 0", {1}}, {"of 1", {1}}, {"of 2", {1}}}));
  });
}

TEST_P(TrainerStateTest, AnActionThatFailedHasTheResultAgain) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    if (rank == 0) keeper.floats["momentum"] = {6};
    keeper.adapter.leaves_after = COVEY_LIST_STATE;
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_ABORTED);
    covey_action action = COVEY_INIT(covey_action);
    covey_error error = COVEY_INIT(covey_error);
    ASSERT_EQ(covey_trainer_next(runtime, keeper.adapter.trainer, -1, &action, &error), COVEY_OK);
    ASSERT_EQ(action.verb, COVEY_LOAD_STATE);
    ASSERT_EQ(covey_trainer_ack(runtime, keeper.adapter.trainer, action.number, 0, &error),
              COVEY_OK);
    ASSERT_EQ(keeper.adapter.Run(-1), COVEY_ABORTED);
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"momentum", {2}}}));
  });
}

TEST_P(TrainerStateTest, KindsThatDifferAreNamedOnAllAndTheNextCallWorks) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    if (rank == 0) keeper.floats["also"] = {1};
    if (rank == 1) keeper.floats["momentum"] = {1, 2};
    if (rank == 2) keeper.numbers["momentum"] = {4};
    EXPECT_EQ(keeper.adapter.Step(0), COVEY_MISMATCH);
    const std::string message = keeper.adapter.error.message;
    for (const char* part :
         {"'momentum'", "float32[2] (average) on rank 1", "int64[1] (max) on rank 2"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(keeper.floats["also"], std::vector<float>(rank == 0 ? 1 : 0, 1)) << "it is as it was";
    keeper.floats.erase("also");
    keeper.numbers.clear();
    if (rank == 2) keeper.floats["momentum"] = {5, 4};
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"momentum", {2, 2}}}));
  });
}

TEST_P(TrainerStateTest, CountsAndOpsAreOfTheKind) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    keeper.floats["momentum"].assign(rank == 2 ? 1 : 2, 3);
    EXPECT_EQ(keeper.adapter.Step(0), COVEY_MISMATCH) << "counts";
    keeper.floats["momentum"].assign(2, static_cast<float>(rank));
    bool is_maximum = rank == 0;
    keeper.adapter.lists = [&] {
      std::vector<covey_state_array> arrays = keeper.Arrays();
      if (is_maximum) arrays[0].op = COVEY_MAX;
      EXPECT_EQ(keeper.List(arrays), COVEY_OK);
    };
    EXPECT_EQ(keeper.adapter.Step(0), COVEY_MISMATCH) << "ops";
    is_maximum = true;
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"momentum", {kRanks - 1, kRanks - 1}}}));
  });
}

TEST_P(TrainerStateTest, WithoutNamesTheOrderCounts) {
  Run([](int rank, covey_runtime* runtime) {
    Keeper keeper(rank, runtime);
    bool is_named = rank == 1;
    keeper.adapter.lists = [&] {
      std::vector<covey_state_array> arrays = keeper.Arrays();
      for (covey_state_array& array : arrays)
        if (!is_named) array.name = nullptr;
      EXPECT_EQ(keeper.List(arrays), COVEY_OK) << keeper.adapter.error.message;
    };
    const auto expect_mismatch = [&](const char* part) {
      EXPECT_EQ(keeper.adapter.Step(0), COVEY_MISMATCH);
      EXPECT_NE(std::string(keeper.adapter.error.message).find(part), std::string::npos)
          << keeper.adapter.error.message;
    };
    keeper.floats = {{"a", {static_cast<float>(rank)}}, {"b", {6}}};
    expect_mismatch("names its arrays on rank 1, and not on rank 0");
    is_named = false;
    if (rank == 2) keeper.floats["b"].push_back(1);
    expect_mismatch("array 1 of the optimizer of");
    if (rank == 2) keeper.floats.clear();
    expect_mismatch("keep 0 to 2 arrays beside the model");
    keeper.floats = {{"", {static_cast<float>(rank)}}};
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(keeper.loaded, (Loaded{{"", {1}}}));
  });
}

TEST(TrainerStateErrorsTest, WrongListsAreRefusedAndNothingIsListed) {
  RunRanks(2, "", [](int rank, covey_runtime*& runtime) {
    Keeper keeper(rank, runtime);
    const std::string longest(1024, 'x'), too_long(1025, 'x');
    keeper.floats = {{"a", {1}}, {"b", {2}}};
    int calls = 0;
    keeper.adapter.lists = [&] {
      ++calls;
      const std::vector<covey_state_array> right = keeper.Arrays();
      const auto expect_refusal = [&](const char* part, const auto& change) {
        std::vector<covey_state_array> wrong = right;
        change(wrong[1]);
        EXPECT_EQ(keeper.List(wrong), COVEY_INVALID_ARGUMENT) << part;
        EXPECT_NE(std::string(keeper.adapter.error.message).find(part), std::string::npos)
            << keeper.adapter.error.message;
      };
      using It = covey_state_array;
      expect_refusal("struct_size", [](It& it) { it.struct_size = 1; });
      expect_refusal("array 1 of the", [](It& it) { it.name = nullptr; });
      expect_refusal("array 1 ('a') of the", [](It& it) { it.name = "a"; });
      expect_refusal("a name that is empty", [](It& it) { it.name = ""; });
      expect_refusal("of more than 1024", [&](It& it) { it.name = too_long.c_str(); });
      for (const covey_op op : {COVEY_SUM, COVEY_MIN, COVEY_PRODUCT})
        expect_refusal("array 1 ('b') of the", [&](It& it) { it.op = op; });
      expect_refusal("is of int32", [](It& it) { it.dtype = COVEY_INT32; });
      for (const int dtype : {-1, static_cast<int>(COVEY_BOOL), 99})
        expect_refusal("no dtype", [&](It& it) { it.dtype = static_cast<covey_dtype>(dtype); });
      expect_refusal("-1 elements", [](It& it) { it.count = -1; });
      expect_refusal("no address", [](It& it) { it.data = nullptr; });
      expect_refusal("in the memory of array 0", [&](It& it) { it.data = right[0].data; });
      EXPECT_EQ(covey_trainer_list(runtime, keeper.adapter.trainer, nullptr, 1, nullptr),
                COVEY_INVALID_ARGUMENT);
      EXPECT_EQ(covey_trainer_list(runtime, keeper.adapter.trainer, right.data(), -1, nullptr),
                COVEY_INVALID_ARGUMENT);
      EXPECT_EQ(covey_trainer_listed(runtime, keeper.adapter.trainer, 0, nullptr, nullptr, nullptr),
                nullptr)
          << "it is no LOAD_STATE";
      std::vector<covey_state_array> last = right;
      last[0].name = longest.c_str();
      last[1].count = 0;
      last[1].data = nullptr;
      EXPECT_EQ(keeper.List(last), COVEY_OK) << keeper.adapter.error.message;
    };
    ASSERT_EQ(keeper.adapter.Step(0), COVEY_OK) << keeper.adapter.error.message;
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(keeper.loaded, (Loaded{{"b", {}}, {longest, {1}}}));
    EXPECT_EQ(covey_trainer_list(runtime, 12345, nullptr, 0, nullptr), COVEY_INVALID_ARGUMENT);
    EXPECT_EQ(covey_trainer_listed(runtime, 12345, 0, nullptr, nullptr, nullptr), nullptr);
  });
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, TrainerStateTest, testing::Values(""));
INSTANTIATE_TEST_SUITE_P(Network, TrainerStateTest, testing::Values(kOverNetwork));

}  // namespace
}  // namespace covey
