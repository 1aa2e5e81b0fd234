// Pieces of the arena are aligned, disjoint and zero; freed memory is found again and merged;
// tensors keep the mapping alive.
#include "core/base/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr uint64_t kBegin = 4096;
constexpr uint64_t kEnd = kBegin + (1 << 20);

Arena* MakeArena() {
  const int fd = memfd_create("arena_test", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, kEnd), 0);
  Arena* arena = nullptr;
  EXPECT_TRUE(Arena::Map(fd, kEnd, kBegin, kEnd, &arena).ok());
  close(fd);
  return arena;
}

TEST(ArenaTest, RandomUseKeepsPiecesDisjointAlignedAndZero) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Arena* arena = MakeArena();
    std::map<uint64_t, size_t> held;  // slow and obvious
    for (int i = 0; i < 500; ++i) {
      if (!held.empty() && rng.Percent(45)) {
        auto victim = std::next(held.begin(), static_cast<long>(rng.Below(held.size())));
        arena->Free(victim->first);
        held.erase(victim);
        continue;
      }
      const size_t length = 1 + rng.Below(20000);
      const uint64_t offset = arena->Alloc(length);
      if (offset == Arena::kFull) continue;
      EXPECT_EQ(offset % 64, 0u);
      EXPECT_GE(offset, kBegin);
      EXPECT_LE(offset + length, kEnd);
      for (const auto& [begin, bytes] : held)
        EXPECT_TRUE(offset + length <= begin || begin + bytes <= offset);
      for (size_t k = 0; k < length; ++k) ASSERT_EQ(arena->base()[offset + k], std::byte{0});
      std::memset(arena->base() + offset, 0xff, length);
      held.emplace(offset, length);
    }
    for (const auto& [offset, length] : held) arena->Free(offset);
    EXPECT_NE(arena->Alloc(kEnd - kBegin - 64), Arena::kFull) << "freed pieces were not merged";
    arena->Unref();
  }
}

TEST(ArenaTest, FullIsSaidAndNothingIsLost) {
  Arena* arena = MakeArena();
  EXPECT_EQ(arena->Alloc(kEnd), Arena::kFull);
  EXPECT_EQ(arena->Alloc(~size_t{0}), Arena::kFull);
  const uint64_t all = arena->Alloc(kEnd - kBegin);
  ASSERT_NE(all, Arena::kFull);
  EXPECT_EQ(arena->Alloc(1), Arena::kFull);
  arena->Free(all);
  EXPECT_NE(arena->Alloc(1), Arena::kFull);
  arena->Unref();
}

// Large pieces get fresh pages; their ends share pages with others.
TEST(ArenaTest, LargePiecesAreZeroAgainAndNeighboursStayAsTheyAre) {
  constexpr size_t kLarge = (size_t{64} << 20) + 3 * 64;
  const int fd = memfd_create("arena", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 2 * kLarge), 0);
  Arena* arena = nullptr;
  ASSERT_TRUE(Arena::Map(fd, 2 * kLarge, kBegin, 2 * kLarge, &arena).ok());
  close(fd);
  const uint64_t before = arena->Alloc(64);
  const uint64_t large = arena->Alloc(kLarge);
  const uint64_t after = arena->Alloc(64);
  std::byte* base = arena->base();
  for (uint64_t offset : {before, large, large + kLarge - 64, large + kLarge / 2, after})
    std::memset(base + offset, 7, 64);
  arena->Free(large);
  ASSERT_EQ(arena->Alloc(kLarge), large);
  for (uint64_t offset : {large, large + kLarge - 64, large + kLarge / 2})
    for (int i = 0; i < 64; ++i) ASSERT_EQ(base[offset + static_cast<uint64_t>(i)], std::byte{0});
  for (uint64_t offset : {before, after})
    for (int i = 0; i < 64; ++i) ASSERT_EQ(base[offset + static_cast<uint64_t>(i)], std::byte{7});
  arena->Unref();
}

TEST(ArenaTest, DataOutlivesItsOwner) {
  Arena* arena = MakeArena();
  void* data = arena->AllocData(1000);
  ASSERT_NE(data, nullptr);
  EXPECT_NE(arena->OffsetOf(static_cast<std::byte*>(data), 1000), Arena::kFull);
  EXPECT_GT(arena->NextHeapBegin(), kBegin) << "an arena made later must not reuse memory in use";
  arena->Unref();
  std::memset(data, 7, 1000);
  Arena::FreeData(data);
}

TEST(ArenaTest, OffsetOfKnowsWhatIsOutside) {
  Arena* arena = MakeArena();
  std::byte outside{};
  EXPECT_EQ(arena->OffsetOf(&outside, 1), Arena::kFull);
  EXPECT_EQ(arena->OffsetOf(nullptr, 0), Arena::kFull);
  EXPECT_EQ(arena->OffsetOf(arena->base() + kEnd - 10, 11), Arena::kFull);
  EXPECT_EQ(arena->OffsetOf(arena->base() + kEnd - 10, 10), kEnd - 10);
  arena->Unref();
}

}  // namespace
}  // namespace covey
