// Every kind of operation through the C API, over real shared memory, in a group that is not
// 0..n-1.
//
// Method: ranks as threads; all but rank 0 (and in the largest job rank 2), or all but the first of
// each host, are the group. Values are random integers and powers of two, so that a contribution
// lost, doubled or swapped shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/rng.h"
#include "core/base/tensor.h"
#include "tests/contract/threads.h"

namespace covey {
namespace {

// What rank `rank` holds at `i`.
float Value(int rank, int64_t i) {
  Rng rng(static_cast<uint64_t>(rank) * 1'000'003 + static_cast<uint64_t>(i));
  return static_cast<float>(rng.Below(1000)) + static_cast<float>(1 << rank) * 1024.0f;
}

std::vector<float> ValuesOf(int rank, int64_t elems) {
  std::vector<float> values;
  for (int64_t i = 0; i < elems; ++i) values.push_back(Value(rank, i));
  return values;
}

// One member of the group, with its own tensors.
class Member {
 public:
  Member(covey_runtime* runtime, int rank, std::vector<int32_t> members)
      : runtime_(runtime), rank_(rank), members_(std::move(members)) {
    EXPECT_EQ(covey_group_of(runtime, members_.data(), size(), &group_, &error_), COVEY_OK)
        << error_.message;
  }

  int32_t size() const { return static_cast<int32_t>(members_.size()); }
  int32_t rank() const { return rank_; }
  int32_t rank_of(int32_t index) const { return members_[static_cast<size_t>(index)]; }
  int32_t index() const {
    return static_cast<int32_t>(std::find(members_.begin(), members_.end(), rank_) -
                                members_.begin());
  }

  covey_request Request(covey_kind kind, const char* name) const {
    covey_request request = COVEY_INIT(covey_request);
    request.kind = kind;
    request.name = name;
    request.group = group_;
    return request;
  }

  // A float32 tensor [rows, 3]; `shape` must outlive it.
  static covey_tensor Tensor(int64_t (&shape)[2], int64_t rows, std::vector<float>* data) {
    shape[0] = rows;
    shape[1] = 3;
    covey_tensor tensor = COVEY_INIT(covey_tensor);
    tensor.ndim = 2;
    tensor.shape = shape;
    tensor.data = data->data();
    return tensor;
  }

  // Runs it; then, if there is one, the result and the rows from each member.
  void Run(const covey_request& request, std::vector<float>* result, std::vector<int64_t>* rows) {
    covey_handle handle = 0;
    ASSERT_EQ(covey_submit(runtime_, &request, &handle, &error_), COVEY_OK) << error_.message;
    ASSERT_EQ(covey_wait(runtime_, handle, -1, &error_), COVEY_OK) << error_.message;
    if (result != nullptr) {
      covey_tensor tensor = COVEY_INIT(covey_tensor);
      rows->assign(members_.size(), -1);
      ASSERT_EQ(covey_result(runtime_, handle, 0, &tensor, rows->data(), &error_), COVEY_OK)
          << error_.message;
      ASSERT_EQ(tensor.ndim, 2);
      const auto* data = static_cast<const float*>(tensor.data);
      result->assign(data, data + tensor.shape[0] * tensor.shape[1]);
    }
    covey_release(runtime_, handle);
  }

 private:
  covey_runtime* runtime_;
  int32_t rank_;
  std::vector<int32_t> members_;
  covey_group group_ = 0;
  covey_error error_ = COVEY_INIT(covey_error);
};

class CollectivesTest : public testing::TestWithParam<Place> {
 protected:
  void OnMembers(const char* settings, const std::function<void(Member*)>& body) {
    std::vector<int32_t> members;
    const Place& place = GetParam();
    for (int32_t r = 1; r < place.size; ++r)
      if (place.groups_firsts ? r != 2 || place.size < 5 : r % place.per_host != 0)
        members.push_back(r);
    const std::string all = std::string(place.settings) + "\n" + settings;
    RunRanks({place.size, all.c_str(), place.per_host}, [&](int rank, covey_runtime*& runtime) {
      if (std::find(members.begin(), members.end(), rank) == members.end()) return;
      Member member(runtime, rank, members);
      body(&member);
    });
  }
};

constexpr const char* kSettings[] = {"", "algorithm=flat", "algorithm=staged",
                                     "algorithm=pairwise\nsegment_bytes=4096",
                                     "flat_bytes=0\nnetwork_segment_bytes=4096"};
// One segment or several of two levels, where there are hosts.
constexpr const char* kLevels[] = {"segment_bytes=4096", "flat_bytes=0",
                                   "flat_bytes=0\nnetwork_segment_bytes=4096"};

TEST_P(CollectivesTest, Reducescatter) {
  for (const char* settings : kSettings) {
    OnMembers(settings, [](Member* me) {
      for (const int64_t rows : {0, 1, 7, 5000}) {
        // Two tensors travelling together, each split on its own.
        int64_t shapes[4][2];
        std::vector<float> in[2] = {ValuesOf(me->rank(), rows * 3), ValuesOf(me->rank() + 4, 6)};
        const int64_t size = me->size();
        const auto part = [&](int64_t whole) {
          return whole / size + (me->index() < whole % size ? 1 : 0);
        };
        std::vector<float> out[2] = {std::vector<float>(static_cast<size_t>(part(rows) * 3)),
                                     std::vector<float>(static_cast<size_t>(part(2) * 3))};
        const covey_tensor inputs[2] = {Member::Tensor(shapes[0], rows, &in[0]),
                                        Member::Tensor(shapes[1], 2, &in[1])};
        const covey_tensor outputs[2] = {Member::Tensor(shapes[2], part(rows), &out[0]),
                                         Member::Tensor(shapes[3], part(2), &out[1])};
        covey_request request = me->Request(COVEY_REDUCESCATTER, "rs");
        request.num_tensors = 2;
        request.inputs = inputs;
        request.outputs = outputs;
        for (int again = 0; again < 3; ++again) {
          me->Run(request, nullptr, nullptr);
          for (size_t t = 0; t < 2; ++t) {
            const int64_t whole = t == 0 ? rows : 2;
            const int64_t first =
                whole / size * me->index() + std::min<int64_t>(me->index(), whole % size);
            for (size_t i = 0; i < out[t].size(); ++i) {
              float sum = 0;
              for (int32_t j = 0; j < size; ++j)
                sum +=
                    Value(me->rank_of(j) + (t == 0 ? 0 : 4), first * 3 + static_cast<int64_t>(i));
              ASSERT_EQ(out[t][i], sum) << "tensor " << t << " elem " << i;
            }
          }
        }
      }
    });
  }
}

// Rows rank `from` has for `to`; some pairs have none.
int64_t Rows(int from, int to, int round) {
  return from + to == 4 ? 0 : (from * 5 + to * 3 + round) % 4 * (round == 2 ? 700 : 1);
}

TEST_P(CollectivesTest, Alltoall) {
  for (const char* settings : kSettings) {
    OnMembers(settings, [](Member* me) {
      for (int round = 0; round < 6; ++round) {
        int64_t shape[2];
        std::vector<int64_t> splits;
        int64_t rows = round % 2;  // with a row that stays here
        for (int32_t j = 0; j < me->size(); ++j) {
          splits.push_back(Rows(me->rank(), me->rank_of(j), round));
          rows += splits.back();
        }
        std::vector<float> data = ValuesOf(me->rank(), rows * 3);
        const covey_tensor input = Member::Tensor(shape, rows, &data);
        covey_request request = me->Request(COVEY_ALLTOALL, "a2a");
        request.num_tensors = 1;
        request.inputs = &input;
        request.splits = splits.data();
        request.num_splits = me->size();
        std::vector<float> result;
        std::vector<int64_t> received;
        me->Run(request, &result, &received);
        std::vector<float> expected;
        for (int32_t j = 0; j < me->size(); ++j) {
          int64_t before = 0;
          for (int32_t k = 0; k < me->index(); ++k)
            before += Rows(me->rank_of(j), me->rank_of(k), round);
          const int64_t mine = Rows(me->rank_of(j), me->rank(), round);
          ASSERT_EQ(received[static_cast<size_t>(j)], mine);
          for (int64_t i = before * 3; i < (before + mine) * 3; ++i)
            expected.push_back(Value(me->rank_of(j), i));
        }
        ASSERT_EQ(result, expected) << "round " << round;
      }
    });
  }
}

TEST_P(CollectivesTest, AllgatherOfUnevenAndNoRows) {
  for (const char* settings : kLevels) {
    OnMembers(settings, [](Member* me) {
      for (const int64_t most : {0, 3, 2000}) {
        int64_t shape[2];
        const auto rows_of = [&](int32_t rank) { return rank % 2 == 0 ? 0 : most / rank; };
        std::vector<float> data = ValuesOf(me->rank(), rows_of(me->rank()) * 3);
        const covey_tensor input = Member::Tensor(shape, rows_of(me->rank()), &data);
        covey_request request = me->Request(COVEY_ALLGATHER, "ag");
        request.num_tensors = 1;
        request.inputs = &input;
        std::vector<float> result;
        std::vector<int64_t> rows;
        me->Run(request, &result, &rows);
        std::vector<float> expected;
        for (int32_t j = 0; j < me->size(); ++j) {
          const std::vector<float> theirs = ValuesOf(me->rank_of(j), rows_of(me->rank_of(j)) * 3);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
          ASSERT_EQ(rows[static_cast<size_t>(j)], rows_of(me->rank_of(j)));
        }
        ASSERT_EQ(result, expected);
      }
    });
  }
}

TEST_P(CollectivesTest, GatherGivesAllRowsToTheRootAlone) {
  OnMembers("segment_bytes=4096", [](Member* me) {
    for (int32_t root = 0; root < me->size(); ++root) {
      int64_t shape[2];
      const auto rows_of = [&](int32_t rank) { return rank % 2 == 0 ? 0 : 2000 / rank; };
      std::vector<float> data = ValuesOf(me->rank(), rows_of(me->rank()) * 3);
      const covey_tensor input = Member::Tensor(shape, rows_of(me->rank()), &data);
      covey_request request = me->Request(COVEY_GATHER, "gather");
      request.root = me->rank_of(root);
      request.num_tensors = 1;
      request.inputs = &input;
      std::vector<float> result;
      std::vector<int64_t> rows;
      me->Run(request, &result, &rows);
      std::vector<float> expected;
      for (int32_t j = 0; j < me->size(); ++j) {
        const int64_t theirs = root == me->index() ? rows_of(me->rank_of(j)) : 0;
        const std::vector<float> values = ValuesOf(me->rank_of(j), theirs * 3);
        expected.insert(expected.end(), values.begin(), values.end());
        ASSERT_EQ(rows[static_cast<size_t>(j)], theirs);
      }
      ASSERT_EQ(result, expected);
    }
  });
}

TEST_P(CollectivesTest, AllreduceBroadcastBarrier) {
  for (const char* settings : kLevels) {
    OnMembers(settings, [](Member* me) {
      for (const int64_t rows : {0, 1, 9000}) {
        int64_t shape[2];
        std::vector<float> data = ValuesOf(me->rank(), rows * 3);
        covey_tensor tensor = Member::Tensor(shape, rows, &data);
        covey_request request = me->Request(COVEY_ALLREDUCE, "ar");
        request.num_tensors = 1;
        request.inputs = &tensor;
        me->Run(request, nullptr, nullptr);
        for (size_t i = 0; i < data.size(); ++i) {
          float sum = 0;
          for (int32_t j = 0; j < me->size(); ++j)
            sum += Value(me->rank_of(j), static_cast<int64_t>(i));
          ASSERT_EQ(data[i], sum);
        }
        data = ValuesOf(me->rank(), rows * 3);
        tensor.data = data.data();
        request.kind = COVEY_BROADCAST;
        request.name = "bc";
        request.root = me->rank_of(static_cast<int32_t>(rows % me->size()));
        me->Run(request, nullptr, nullptr);
        ASSERT_EQ(data, ValuesOf(request.root, rows * 3));
      }
      me->Run(me->Request(COVEY_BARRIER, nullptr), nullptr, nullptr);
    });
  }
}

// What every rank holds at `i`: all of the dtype's numbers, and its borders more often.
template <class T>
T Whole(int rank, int64_t i) {
  Rng rng(static_cast<uint64_t>(rank) * 7'000'003 + static_cast<uint64_t>(i));
  const T borders[] = {std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), 100, 1};
  const uint64_t drawn = rng.Below(8);
  return drawn < 4 ? borders[drawn] : static_cast<T>(rng.Next());
}

// As core/api/LIMITS.md has it: the sum wraps in the dtype.
template <class T>
T AverageOf(const std::vector<T>& values) {
  if (values.size() == 1) return values[0];
  std::make_unsigned_t<T> sum = 0;
  for (const T value : values) sum = static_cast<std::make_unsigned_t<T>>(sum + value);
  const auto whole = static_cast<T>(sum);
  const auto size = static_cast<T>(values.size());
  return static_cast<T>(whole / size);
}

template <class T>
void CheckAverages(Member* me, covey_dtype dtype, const char* name) {
  for (const int64_t count : {int64_t{1}, int64_t{67}, int64_t{20000}}) {
    std::vector<T> data;
    for (int64_t i = 0; i < count; ++i) data.push_back(Whole<T>(me->rank(), i));
    covey_tensor tensor = COVEY_INIT(covey_tensor);
    tensor.dtype = dtype;
    tensor.ndim = 1;
    tensor.shape = &count;
    tensor.data = data.data();
    covey_request request = me->Request(COVEY_ALLREDUCE, name);
    request.op = COVEY_AVERAGE;
    request.num_tensors = 1;
    request.inputs = &tensor;
    me->Run(request, nullptr, nullptr);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<T> values;
      for (int32_t j = 0; j < me->size(); ++j) values.push_back(Whole<T>(me->rank_of(j), i));
      ASSERT_EQ(data[static_cast<size_t>(i)], AverageOf(values)) << name << " at " << i;
    }
  }
}

TEST(AverageOfIntegersTest, IsWhatTheListOfLimitsSays) {
  EXPECT_EQ(AverageOf<uint8_t>({200, 200}), 72);
  EXPECT_EQ(AverageOf<int8_t>({100, 100}), -28);
  EXPECT_EQ(AverageOf<int8_t>({-3, -4}), -3) << "truncated to zero";
  const int64_t large = (int64_t{1} << 60) + 1;
  EXPECT_EQ(AverageOf<int64_t>({large, large}), large);
  EXPECT_EQ(AverageOf<int64_t>({INT64_MAX, INT64_MAX}), -1);
}

TEST_P(CollectivesTest, AveragesOfIntegersWrap) {
  for (const char* settings : kSettings) {
    OnMembers(settings, [](Member* me) {
      CheckAverages<uint8_t>(me, COVEY_UINT8, "uint8");
      CheckAverages<int8_t>(me, COVEY_INT8, "int8");
      CheckAverages<int32_t>(me, COVEY_INT32, "int32");
      CheckAverages<int64_t>(me, COVEY_INT64, "int64");
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest,
                         testing::Values(Place{2, ""}, Place{3, ""}, Place{4, ""}, Place{6, ""}));
// The group's members on hosts: one and three, one and two, three times one, all on one.
INSTANTIATE_TEST_SUITE_P(OverNetwork, CollectivesTest,
                         testing::Values(Place{6, kOverNetwork, 3}, Place{4, kOverNetwork, 2},
                                         Place{5, kOverNetwork, 2}, Place{4, kOverNetwork, 4},
                                         Place{4, kOverNetwork}));
// Two and two, three and three, two, two and one.
INSTANTIATE_TEST_SUITE_P(OverHosts, CollectivesTest,
                         testing::Values(Place{6, kOverNetwork, 3, false},
                                         Place{8, kOverNetwork, 4, false},
                                         Place{8, kOverNetwork, 3, false}));

}  // namespace
}  // namespace covey
