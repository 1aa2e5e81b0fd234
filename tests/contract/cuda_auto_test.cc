// Goal: left to itself a tensor of CUDA goes by NCCL where all ranks have it, else by IPC where all
// can open each other's memory, else through the host; and the knob leaves out what it says.
// Method: the plug-in with kernels over a driver and an NCCL without a card, ranks as threads, each
// with a card of its own; the counts of the stats. The steps in which the library is looked for go
// any way, so each test goes on until the way it wants has been seen, or NCCL has been given up.
#include <functional>
#include <string>

#include "tests/contract/nccl_ranks.h"

namespace covey {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 20;

struct Ways {
  int nccl = 0, ipc = 0;
};

// The ways of the last kSteps of some steps. Those before go on until `has_come`.
Ways WaysOf(covey_runtime* runtime, int rank, const std::function<bool()>& has_come) {
  void* stream = CudaOfTest().stream();
  const auto step = [&] {
    EXPECT_EQ(SumOf(runtime, "x", static_cast<float>(rank), 5000, stream), 1.0f);
  };
  DoUntil(runtime, kRanks, has_come, step);
  const Ways before = {Stat(runtime, "exchanges_nccl"), Stat(runtime, "exchanges_ipc")};
  for (int i = 0; i < kSteps; ++i) step();
  return {Stat(runtime, "exchanges_nccl") - before.nccl,
          Stat(runtime, "exchanges_ipc") - before.ipc};
}

void Expect(const std::string& path, int nccl, int ipc,
            const std::function<bool(covey_runtime*)>& has_come) {
  const std::string settings = "plugin_path=tests/plugins/cuda\nipc_bytes=0B\ncuda_path=" + path;
  testing::internal::CaptureStderr();
  RunRanks(kRanks, settings.c_str(), [&](int rank, covey_runtime*& runtime) {
    CudaOfTest().use_card(rank + 1);
    const Ways ways = WaysOf(runtime, rank, [&] { return has_come(runtime); });
    EXPECT_EQ(ways.nccl, nccl) << path;
    EXPECT_EQ(ways.ipc, ipc) << path;
    EXPECT_EQ(Stat(runtime, "exchanges_voided"), 0) << path;
  });
  testing::internal::GetCapturedStderr();
}

bool ByNccl(covey_runtime* runtime) { return Stat(runtime, "exchanges_nccl") > 0; }
bool ByIpc(covey_runtime* runtime) { return Stat(runtime, "exchanges_ipc") > 0; }
bool AtOnce(covey_runtime*) { return true; }

TEST(CudaAutoTest, NcclBeforeIpc) {
  NcclOfTest();
  Expect("auto", kSteps, 0, ByNccl);
}

TEST(CudaAutoTest, WithoutNcclIpc) {
  NcclOfTest().be_of(21703);
  Expect("auto", 0, kSteps, ByIpc);
}

TEST(CudaAutoTest, WithoutBothStaged) {
  NcclOfTest().be_of(21703);
  CudaOfTest().refuse(0, 1);
  Expect("auto", 0, 0, AtOnce);
  CudaOfTest().refuse(0, 0);
}

TEST(CudaAutoTest, NcclMeansNoIpc) {
  NcclOfTest();
  Expect("nccl", kSteps, 0, [](covey_runtime* runtime) {
    EXPECT_EQ(Stat(runtime, "exchanges_ipc"), 0);
    return ByNccl(runtime);
  });
}

TEST(CudaAutoTest, IpcMeansNoNccl) {
  const FakeNccl& nccl = NcclOfTest();
  const int asked = nccl.asked();
  Expect("ipc", 0, kSteps, ByIpc);
  EXPECT_EQ(nccl.asked(), asked);
}

}  // namespace
}  // namespace covey
