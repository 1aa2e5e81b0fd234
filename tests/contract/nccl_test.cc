// Goal: tensors of CUDA go between the devices by NCCL where all ranks have it: right results, on
// all sizes of groups, in one order, with staged exchanges as long as it is not there; and when it
// fails or a rank goes an error that names the rank, and no hang.
// Method: real shared memory, ranks as threads, the plug-in libcovey_cuda.so over a driver and a
// library without a card (tests/plugins/driver, tests/plugins/nccl). Every rank plays a card of its
// own. No card is asked: not measured.
#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "tests/contract/nccl_ranks.h"

namespace covey {
namespace {

constexpr const char* kSettings = "plugin_path=ops/devices\nnccl_bytes=0B";

// On every rank a card of its own, and a stream.
void RunCards(int size, const char* settings,
              const std::function<void(int, covey_runtime*&, void*)>& body) {
  const FakeCuda& cuda = CudaOfTest();
  RunRanks(size, settings, [&](int rank, covey_runtime*& runtime) {
    cuda.use_card(rank + 1);
    body(rank, runtime, cuda.stream());
  });
}

template <typename T>
void TryType(covey_runtime* runtime, int rank, int size, covey_dtype dtype, void* stream) {
  const auto n = static_cast<size_t>(size);
  for (const covey_op op : {COVEY_SUM, COVEY_MIN, COVEY_MAX, COVEY_PRODUCT})
    for (const covey_kind kind : {COVEY_ALLREDUCE, COVEY_REDUCESCATTER, COVEY_BROADCAST}) {
      const size_t elems = 60 * n;
      OnDevice input(dtype, sizeof(T), elems, stream);
      OnDevice output(dtype, sizeof(T), kind == COVEY_REDUCESCATTER ? 60 : elems, stream);
      std::vector<T> values(elems), expected(elems);
      const auto of = [](int r, size_t e) { return static_cast<T>(1 + (e + size_t(r)) % 3); };
      for (size_t e = 0; e < elems; ++e) {
        values[e] = of(rank, e);
        expected[e] = of(0, e);
        for (int r = 1; r < size; ++r) {
          const T other = of(r, e);
          expected[e] = static_cast<T>(op == COVEY_SUM       ? expected[e] + other
                                       : op == COVEY_PRODUCT ? expected[e] * other
                                       : op == COVEY_MIN     ? std::min(expected[e], other)
                                                             : std::max(expected[e], other));
        }
        if (kind == COVEY_BROADCAST) expected[e] = of(size - 1, e);
      }
      if (kind == COVEY_REDUCESCATTER)
        expected = std::vector<T>(expected.begin() + rank * 60, expected.begin() + rank * 60 + 60);
      input.Compute(values);
      covey_request request = COVEY_INIT(covey_request);
      request.kind = kind;
      request.op = kind == COVEY_BROADCAST ? COVEY_SUM : op;
      request.root = size - 1;
      request.num_tensors = 1;
      request.inputs = &input.tensor;
      request.outputs = &output.tensor;
      const int before = Stat(runtime, "exchanges_nccl");
      std::string text;
      ASSERT_EQ(Do(runtime, request, &text), COVEY_OK) << text;
      EXPECT_EQ(Stat(runtime, "exchanges_nccl"), before + 1);
      ASSERT_EQ(output.Read<T>(), expected) << "type " << dtype << " op " << op << " kind " << kind;
      input.Read<T>();
    }
}

TEST(NcclTest, EveryKindOfEveryType) {
  const FakeNccl& nccl = NcclOfTest();
  for (const int size : {1, 2, 3}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    RunCards(size, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
      AwaitCircuit(runtime, stream);
      const int waits = CudaOfTest().waits();
      TryType<float>(runtime, rank, size, COVEY_FLOAT32, stream);
      TryType<double>(runtime, rank, size, COVEY_FLOAT64, stream);
      TryType<uint8_t>(runtime, rank, size, COVEY_UINT8, stream);
      TryType<int8_t>(runtime, rank, size, COVEY_INT8, stream);
      TryType<int32_t>(runtime, rank, size, COVEY_INT32, stream);
      TryType<int64_t>(runtime, rank, size, COVEY_INT64, stream);
      EXPECT_EQ(CudaOfTest().waits(), waits) << "a thread of the user's waited for the device";
      EXPECT_EQ(CudaOfTest().depth(), 0) << "the thread's current context is another";
    });
    EXPECT_EQ(nccl.left(), 0);
    EXPECT_EQ(nccl.mixed(), 0);
  }
  EXPECT_EQ(nccl.aborted(), 0) << "what has ended well is taken down in order";
  EXPECT_EQ(nccl.without_context(), 0);
}

// Half precision, by its bits: 1 is 0x3c00 and 0x3f80, 3 is 0x4200 and 0x4040, 2 is 0x4000.
TEST(NcclTest, HalvesAndAverages) {
  NcclOfTest();
  RunCards(2, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
    AwaitCircuit(runtime, stream);
    struct Case {
      covey_dtype dtype;
      uint16_t mine, sum, average;
    };
    for (const Case& c :
         {Case{COVEY_FLOAT16, static_cast<uint16_t>(rank == 0 ? 0x3c00 : 0x4200), 0x4400, 0x4000},
          Case{COVEY_BFLOAT16, static_cast<uint16_t>(rank == 0 ? 0x3f80 : 0x4040), 0x4080,
               0x4000}}) {
      for (const covey_op op : {COVEY_SUM, COVEY_AVERAGE}) {
        OnDevice memory(c.dtype, 2, 70, stream);
        memory.Compute(std::vector<uint16_t>(70, c.mine));
        const covey_request request = InPlace(memory, nullptr, op);
        const int before = Stat(runtime, "exchanges_nccl");
        std::string text;
        ASSERT_EQ(Do(runtime, request, &text), COVEY_OK) << text;
        EXPECT_EQ(Stat(runtime, "exchanges_nccl"), before + 1);
        EXPECT_EQ(memory.Read<uint16_t>(),
                  std::vector<uint16_t>(70, op == COVEY_SUM ? c.sum : c.average));
      }
    }
  });
}

TEST(NcclTest, TheAverageOfOneRankIsWhole) {
  NcclOfTest();
  RunCards(1, kSettings, [&](int, covey_runtime*& runtime, void* stream) {
    AwaitCircuit(runtime, stream);
    std::vector<float> values(101);
    std::iota(values.begin(), values.end(), 1.0f);
    for (const covey_kind kind : {COVEY_ALLREDUCE, COVEY_REDUCESCATTER}) {
      OnDevice input(COVEY_FLOAT32, 4, values.size(), stream);
      OnDevice output(COVEY_FLOAT32, 4, values.size(), stream);
      output.Compute(std::vector<float>(values.size()));
      input.Compute(values);
      covey_request request = COVEY_INIT(covey_request);
      request.kind = kind;
      request.op = COVEY_AVERAGE;
      request.num_tensors = 1;
      request.inputs = &input.tensor;
      request.outputs = &output.tensor;
      const int before = Stat(runtime, "exchanges_nccl");
      std::string text;
      ASSERT_EQ(Do(runtime, request, &text), COVEY_OK) << text;
      EXPECT_EQ(Stat(runtime, "exchanges_nccl"), before + 1);
      EXPECT_EQ(output.Read<float>(), values);
    }
  });
}

// What NCCL lacks, or is too small for it, is staged; both in turn on one name.
TEST(NcclTest, WhatItLacksIsStaged) {
  NcclOfTest();
  RunCards(2, "plugin_path=ops/devices\nnccl_bytes=400B",
           [&](int rank, covey_runtime*& runtime, void* stream) {
             AwaitCircuit(runtime, stream);
             const int before = Stat(runtime, "exchanges_nccl");
             for (int turn = 0; turn < 3; ++turn) {
               EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank + 1), 99, stream), 3.0f);
               EXPECT_EQ(Stat(runtime, "exchanges_nccl"), before + turn);
               EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank + 1), 100, stream), 3.0f);
               EXPECT_EQ(Stat(runtime, "exchanges_nccl"), before + turn + 1);
             }
             OnDevice memory(COVEY_INT32, 4, 500, stream);
             memory.Compute(std::vector<int32_t>(500, rank == 0 ? 3 : 4));
             // Of integers it truncates.
             const covey_request request = InPlace(memory, nullptr, COVEY_AVERAGE);
             std::string text;
             ASSERT_EQ(Do(runtime, request, &text), COVEY_OK) << text;
             EXPECT_EQ(memory.Read<int32_t>(), std::vector<int32_t>(500, 3));
             EXPECT_EQ(Stat(runtime, "exchanges_nccl"), before + 3);
           });
}

// Groups that overlap, everything in flight at once, each rank in an order of its own.
TEST(NcclTest, GroupsThatOverlapLaunchInOneOrder) {
  const FakeNccl& nccl = NcclOfTest();
  const int launched = nccl.launched();
  const std::vector<std::vector<int32_t>> groups = {{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}};
  RunCards(3, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
    std::mt19937 random(static_cast<uint32_t>(rank) + 20261122);
    std::vector<covey_group> numbers;
    std::vector<size_t> mine;
    for (size_t g = 0; g < groups.size(); ++g) {
      covey_error error = COVEY_INIT(covey_error);
      covey_group number = 0;
      ASSERT_EQ(covey_group_of(runtime, groups[g].data(), static_cast<int32_t>(groups[g].size()),
                               &number, &error),
                COVEY_OK);
      numbers.push_back(number);
      if (!std::count(groups[g].begin(), groups[g].end(), rank)) continue;
      AwaitCircuit(runtime, stream, number);
      for (int copy = 0; copy < 4; ++copy) mine.push_back(g * 4 + static_cast<size_t>(copy));
    }
    for (int turn = 0; turn < 20; ++turn) {
      std::shuffle(mine.begin(), mine.end(), random);
      std::vector<std::unique_ptr<OnDevice>> memory;
      std::vector<covey_handle> handles;
      for (const size_t one : mine) {
        memory.push_back(std::make_unique<OnDevice>(COVEY_FLOAT32, 4, 10 + one, stream));
        memory.back()->Compute(std::vector<float>(10 + one, static_cast<float>(rank + turn)));
        const std::string name = "s" + std::to_string(one);
        covey_request request = InPlace(*memory.back(), name.c_str());
        request.group = numbers[one / 4];
        covey_error error = COVEY_INIT(covey_error);
        covey_handle handle = 0;
        ASSERT_EQ(covey_submit(runtime, &request, &handle, &error), COVEY_OK) << error.message;
        handles.push_back(handle);
      }
      for (size_t i = 0; i < mine.size(); ++i) {
        covey_error error = COVEY_INIT(covey_error);
        ASSERT_EQ(covey_wait(runtime, handles[i], -1, &error), COVEY_OK) << error.message;
        covey_release(runtime, handles[i]);
        float sum = 0;
        for (const int32_t r : groups[mine[i] / 4]) sum += static_cast<float>(r + turn);
        ASSERT_EQ(memory[i]->Read<float>(), std::vector<float>(10 + mine[i], sum));
      }
    }
    EXPECT_GT(Stat(runtime, "exchanges_nccl"), 20);
  });
  EXPECT_EQ(nccl.mixed(), 0) << "members launched in different orders";
  EXPECT_GT(nccl.launched(), launched);
  EXPECT_EQ(nccl.left(), 0);
}

TEST(NcclTest, RanksThatShareACardAreStaged) {
  const FakeNccl& nccl = NcclOfTest();
  const int made = nccl.made();
  const int asked = nccl.asked();
  testing::internal::CaptureStderr();
  const FakeCuda& cuda = CudaOfTest();
  RunRanks(2, kSettings, [&](int rank, covey_runtime*& runtime) {
    cuda.use_card(7);
    void* stream = cuda.stream();
    DoUntil(
        runtime, 2, [&] { return nccl.asked() > asked; },
        [&] { EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 100, stream), 1.0f); });
    EXPECT_EQ(Stat(runtime, "exchanges_nccl"), 0);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(nccl.made(), made);
}

// With cuda_path=nccl that is an error, on all ranks alike.
TEST(NcclTest, WhoInsistsIsTold) {
  NcclOfTest();
  const FakeCuda& cuda = CudaOfTest();
  RunRanks(2, "plugin_path=ops/devices\nnccl_bytes=0B\ncuda_path=nccl",
           [&](int, covey_runtime*& runtime) {
             cuda.use_card(7);
             OnDevice memory(COVEY_FLOAT32, 4, 100, cuda.stream());
             memory.Compute(std::vector<float>(100, 1));
             const covey_request request = InPlace(memory, "x");
             std::string text;
             covey_code code = COVEY_OK;
             for (int turn = 0; turn < 100'000 && code == COVEY_OK; ++turn)
               code = Do(runtime, request, &text);
             EXPECT_EQ(code, COVEY_UNSUPPORTED);
             EXPECT_NE(text.find("cuda_path is nccl, and ranks 0 and 1 use one device"),
                       std::string::npos)
                 << text;
             memory.Read<float>();
           });
}

TEST(NcclTest, StagedMeansThatItIsNotAsked) {
  const FakeNccl& nccl = NcclOfTest();
  const int asked = nccl.asked();
  RunCards(2, "plugin_path=ops/devices\ncuda_path=staged\nnccl_bytes=0B",
           [&](int rank, covey_runtime*& runtime, void* stream) {
             for (int turn = 0; turn < 20; ++turn)
               EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 5000, stream), 1.0f);
           });
  EXPECT_EQ(nccl.asked(), asked);
}

TEST(NcclTest, WhatIsTooOldIsSaidOnce) {
  const FakeNccl& nccl = NcclOfTest();
  nccl.be_of(21703);
  const int made = nccl.made();
  const int asked = nccl.asked();
  testing::internal::CaptureStderr();
  RunCards(3, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
    DoUntil(
        runtime, 3, [&] { return nccl.asked() >= asked + 3; },
        [&] { EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 100, stream), 3.0f); });
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(nccl.made(), made);
  const char* wanted =
      "NCCL is of version 21703, and 21800 (2.18) is the oldest that is used; tensors of devices "
      "travel without it";
  const size_t at = said.find(wanted);
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find(wanted, at + 1), std::string::npos) << said;
}

TEST(NcclTest, StagedServesWhileOneIsNeverReady) {
  const FakeNccl& nccl = NcclOfTest();
  nccl.never_ready();
  const int made = nccl.made();
  RunCards(2, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
    DoUntil(
        runtime, 2, [&] { return nccl.made() >= made + 2; },
        [&] { EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 5000, stream), 1.0f); });
    EXPECT_EQ(Stat(runtime, "exchanges_nccl"), 0);
  });
  EXPECT_EQ(nccl.left(), 0) << "what is being made is aborted at the end";
}

TEST(NcclTest, StagedServesWhereNoneCanBeMade) {
  const FakeNccl& nccl = NcclOfTest();
  nccl.refuse();
  testing::internal::CaptureStderr();
  const int asked = nccl.asked();
  RunCards(2, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
    // Two versions, an id, and two that are refused.
    DoUntil(
        runtime, 2, [&] { return nccl.asked() >= asked + 5; },
        [&] { EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 5000, stream), 1.0f); });
    EXPECT_EQ(Stat(runtime, "exchanges_nccl"), 0);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(nccl.left(), 0);
}

TEST(NcclTest, AnErrorOfNcclNamesTheRankAndTheRestIsStaged) {
  const FakeNccl& nccl = NcclOfTest();
  const int aborted = nccl.aborted();
  testing::internal::CaptureStderr();
  RunCards(2, kSettings, [&](int rank, covey_runtime*& runtime, void* stream) {
    AwaitCircuit(runtime, stream);
    OnDevice memory(COVEY_FLOAT32, 4, 100, stream);
    memory.Compute(std::vector<float>(100, 1));
    const covey_request request = InPlace(memory, "x");
    // Its input is never ready: the collective cannot be done before the error is there.
    static std::atomic<bool> open;
    if (rank == 1) {
      open = false;
      HoldBack(&memory.tensor, &open);
      nccl.fail(1);
    }
    std::string text;
    EXPECT_EQ(Do(runtime, request, &text), COVEY_ABORTED);
    EXPECT_NE(text.find("rank 1 "), std::string::npos) << text;
    const bool tells = text.find("the cable has come off") != std::string::npos;
    EXPECT_TRUE(tells || rank != 1) << text;
    open = true;
    memory.Read<float>();
    for (int turn = 0; turn < 5; ++turn)
      EXPECT_EQ(SumOf(runtime, "y", static_cast<float>(rank), 100, stream), 1.0f);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(nccl.aborted(), aborted + 2);
  EXPECT_EQ(nccl.left(), 0);
}

// Rank 2 goes while the others are inside the collective: it has begun, but its input never came.
TEST(NcclTest, ARankThatGoesEndsWhatWaitsForItInsideNccl) {
  const FakeNccl& nccl = NcclOfTest();
  static std::atomic<bool> open;
  open = false;
  testing::internal::CaptureStderr();
  const std::string settings = std::string(kSettings) + "\n" + kLooksForLosses;
  RunCards(3, settings.c_str(), [&](int rank, covey_runtime*& runtime, void* stream) {
    AwaitCircuit(runtime, stream);
    OnDevice memory(COVEY_FLOAT32, 4, 100, stream);
    memory.Compute(std::vector<float>(100, 1));
    const covey_request request = InPlace(memory, "x");
    std::string text;
    if (rank == 2) {
      HoldBack(&memory.tensor, &open);
      covey_error error = COVEY_INIT(covey_error);
      covey_handle handle = 0;
      ASSERT_EQ(covey_submit(runtime, &request, &handle, &error), COVEY_OK) << error.message;
      while (nccl.inside() < 2) std::this_thread::yield();
      covey_runtime_free(runtime);
      runtime = nullptr;
      open = true;
    } else {
      EXPECT_EQ(Do(runtime, request, &text), COVEY_ABORTED);
      EXPECT_NE(text.find("rank 2 "), std::string::npos) << text;
    }
    memory.Read<float>();
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(nccl.left(), 0);
  EXPECT_EQ(nccl.inside(), 0);
}

}  // namespace
}  // namespace covey
