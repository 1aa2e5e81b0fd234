// Goal: an NCCL that lacks a function is not used, which is said once, and tensors are staged.
// Method: as tests/contract/nccl_test.cc, over a library without ncclCommAbort; a test of its own,
// because a process has one NCCL.
#include "tests/contract/nccl_ranks.h"

namespace covey {
namespace {

TEST(NcclTornTest, IsNotUsed) {
  const FakeNccl& nccl = NcclOfTest("nccl_torn");
  const FakeCuda& cuda = CudaOfTest();
  testing::internal::CaptureStderr();
  RunRanks(2, "plugin_path=ops/devices\nnccl_bytes=0B", [&](int rank, covey_runtime*& runtime) {
    cuda.use_card(rank + 1);
    void* stream = cuda.stream();
    DoUntil(
        runtime, 2, [&] { return nccl.asked() >= 2; },
        [&] { EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 100, stream), 1.0f); });
    EXPECT_EQ(Stat(runtime, "exchanges_nccl"), 0);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the NCCL of this process has no function ncclCommAbort"), std::string::npos)
      << said;
  EXPECT_EQ(nccl.made(), 0);
}

}  // namespace
}  // namespace covey
