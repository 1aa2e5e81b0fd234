// Memory that was freed is not new to the process when it is allocated again.
#include "core/base/keep_freed.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace covey {
namespace {

constexpr size_t kPieces = 8, kBytes = size_t{6} << 20, kPages = kPieces * kBytes / 4096;

// The page faults of pieces that are allocated, written and freed.
long FaultsOfAStep() {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  std::vector<void*> pieces;
  for (size_t i = 0; i < kPieces; ++i) {
    pieces.push_back(std::malloc(kBytes));
    std::memset(pieces.back(), 1, kBytes);
  }
  for (void* piece : pieces) std::free(piece);
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(KeepFreedTest, FreedMemoryStaysWithTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
  KeepFreedMemory(0);
  FaultsOfAStep();
  if (FaultsOfAStep() < static_cast<long>(kPages / 2)) GTEST_SKIP() << "it stays anyway";
  KeepFreedMemory(size_t{1} << 30);
  FaultsOfAStep();
  EXPECT_LT(FaultsOfAStep(), static_cast<long>(kPages / 20));
}

}  // namespace
}  // namespace covey
