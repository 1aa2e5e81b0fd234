// Goal: where NCCL never returns from an abort, the operation ends all the same, named after who
// has failed, others are staged, and the runtime can be freed.
// Method: as tests/contract/nccl_test.cc; a test of its own, because two threads of it never end.
#include "tests/contract/nccl_ranks.h"

#if defined(__SANITIZE_ADDRESS__)
// What threads hold that never end is no leak, and their state is more than the search can read.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() { return 1; }
#endif

namespace covey {
namespace {

TEST(NcclStuckTest, EndsWithinTheBound) {
  const FakeNccl& nccl = NcclOfTest();
  const FakeCuda& cuda = CudaOfTest();
  nccl.never_abort();
  testing::internal::CaptureStderr();
  const char* settings = "plugin_path=ops/devices\nnccl_bytes=0B\nnccl_abort=50ms\nrecheck=1s";
  RunRanks(2, settings, [&](int rank, covey_runtime*& runtime) {
    cuda.use_card(rank + 1);
    void* stream = cuda.stream();
    AwaitCircuit(runtime, stream);
    OnDevice memory(COVEY_FLOAT32, 4, 100, stream);
    memory.Compute(std::vector<float>(100, 1));
    const covey_request request = InPlace(memory, "x");
    static std::atomic<bool> open;
    if (rank == 1) {
      open = false;
      HoldBack(&memory.tensor, &open);
      nccl.fail(1);
    }
    std::string text;
    EXPECT_EQ(Do(runtime, request, &text), COVEY_ABORTED);
    EXPECT_NE(text.find("rank 1 "), std::string::npos) << text;
    open = true;
    for (int turn = 0; turn < 5; ++turn)
      EXPECT_EQ(SumOf(runtime, "y", static_cast<float>(rank), 100, cuda.stream()), 1.0f);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(nccl.left(), 2) << "an abort has returned: this shows nothing";
}

}  // namespace
}  // namespace covey
