// What is written in a private view is this process's own, page by page, until it is refreshed; all
// else is what shared memory holds, also when that changes.
#include "core/base/copy_on_write.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 5000;  // more than are asked for at once

class CopyOnWriteTest : public testing::Test {
 protected:
  void SetUp() override {
    const int fd = memfd_create("copy_on_write_test", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, kPages * kPage), 0);
    shared_ = static_cast<std::byte*>(
        mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(shared_, MAP_FAILED);
    view_ = CopyOnWrite::Map(fd, kPages * kPage);
    close(fd);
    if (view_ == nullptr) GTEST_SKIP() << "this system does not tell what was written";
  }
  void TearDown() override { munmap(shared_, kPages * kPage); }

  std::byte* shared_ = nullptr;
  std::unique_ptr<CopyOnWrite> view_;
};

TEST_F(CopyOnWriteTest, ShowsWhatOthersWriteAndHidesWhatIsWrittenHere) {
  shared_[10] = std::byte{1};
  EXPECT_EQ(view_->base()[10], std::byte{1});
  shared_[10] = std::byte{2};
  EXPECT_EQ(view_->base()[10], std::byte{2});
  view_->base()[11] = std::byte{3};
  EXPECT_EQ(shared_[11], std::byte{0});
  shared_[10] = std::byte{4};
  EXPECT_EQ(view_->base()[10], std::byte{2}) << "the page is its own";
  EXPECT_EQ(view_->Refresh(0, 1), 1u);
  EXPECT_EQ(view_->base()[10], std::byte{4});
  EXPECT_EQ(view_->base()[11], std::byte{0});
  EXPECT_EQ(view_->Refresh(0, kPages * kPage), 0u);
}

TEST_F(CopyOnWriteTest, PagesThatAreLockedAreCopied) {
  constexpr size_t kLocked = 4;
  if (mlock(view_->base(), kLocked * kPage) != 0) GTEST_SKIP() << "no page may be locked";
  if (madvise(view_->base(), kPage, MADV_DONTNEED) == 0)
    GTEST_SKIP() << "pages are not locked: a sanitizer takes mlock for done";
  for (int version = 1; version <= 3; ++version) {
    std::memset(shared_, version, 2 * kLocked * kPage);
    EXPECT_EQ(view_->Refresh(0, 2 * kLocked * kPage), kLocked);
    EXPECT_EQ(std::memcmp(view_->base(), shared_, 2 * kLocked * kPage), 0) << version;
  }
  munlock(view_->base(), kLocked * kPage);
}

TEST_F(CopyOnWriteTest, RandomWritesAreFoundWhereTheyAreAndNowhereElse) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<bool> written(kPages, false);  // slow and obvious
    std::memset(shared_, static_cast<int>(seed), kPages * kPage);
    for (int i = 0; i < 300; ++i) {
      const size_t page = rng.Percent(50) ? rng.Below(kPages) : 4090 + rng.Below(12);
      view_->base()[page * kPage + rng.Below(kPage)] = std::byte{0xff};
      written[page] = true;
    }
    const size_t begin = rng.Below(kPages * kPage - 1);
    const size_t length = 1 + rng.Below(kPages * kPage - begin);
    size_t expected = 0;
    for (size_t page = begin / kPage; page * kPage < begin + length; ++page) {
      expected += written[page] ? 1 : 0;
      written[page] = false;
    }
    EXPECT_EQ(view_->Refresh(begin, length), expected);
    for (size_t page = 0; page < kPages; ++page) {
      const bool same =
          std::memcmp(view_->base() + page * kPage, shared_ + page * kPage, kPage) == 0;
      ASSERT_EQ(same, !written[page]) << page;
    }
    view_->Refresh(0, kPages * kPage);
  }
}

}  // namespace
}  // namespace covey
