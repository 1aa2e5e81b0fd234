// Goal: what libcovey.so and plug-ins define for an older glibc does what the newer one's does.
// Method: the test links them; waits by the wall clock on a condition end in time and when
// signalled, and the system calls tell what files are.
#include "core/base/older_glibc.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

namespace covey {
namespace {

using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

class OlderGlibcTest : public ::testing::TestWithParam<Wait> {
 protected:
  timespec After(long ns) {
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1'000'000'000;
    until.tv_nsec = (until.tv_nsec + ns) % 1'000'000'000;
    return until;
  }
  int WaitUntil(const timespec& until) {
    return GetParam()(&condition_, &mutex_, CLOCK_MONOTONIC, &until);
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

TEST_P(OlderGlibcTest, AWaitEndsNotBeforeItsTime) {
  pthread_mutex_lock(&mutex_);
  for (const long ns : {1L, 1'000'000L, 999'999'999L / 100}) {
    const timespec until = After(ns);
    EXPECT_EQ(WaitUntil(until), ETIMEDOUT);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    EXPECT_TRUE(now.tv_sec > until.tv_sec ||
                (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
  }
  EXPECT_EQ(WaitUntil({0, 0}), ETIMEDOUT);
  pthread_mutex_unlock(&mutex_);
}

TEST_P(OlderGlibcTest, ASignalEndsAWait) {
  bool is_set = false;
  pthread_mutex_lock(&mutex_);
  std::thread other([&] {
    pthread_mutex_lock(&mutex_);
    is_set = true;
    pthread_cond_signal(&condition_);
    pthread_mutex_unlock(&mutex_);
  });
  timespec until = After(0);
  until.tv_sec += 3600;
  while (!is_set) EXPECT_EQ(WaitUntil(until), 0);
  pthread_mutex_unlock(&mutex_);
  other.join();
}

TEST_P(OlderGlibcTest, AnUnknownClockIsAnError) {
  pthread_mutex_lock(&mutex_);
  const timespec until = After(0);
  EXPECT_EQ(GetParam()(&condition_, &mutex_, 1000, &until), EINVAL);
  pthread_mutex_unlock(&mutex_);
}

INSTANTIATE_TEST_SUITE_P(Both, OlderGlibcTest,
                         ::testing::Values(WaitByWallClock, pthread_cond_clockwait),
                         [](const auto& test) {
                           return test.index == 0 ? "by_wall_clock" : "of_this_glibc";
                         });

TEST(OlderGlibcFilesTest, FilesAreToldAsTheKernelTellsThem) {
  const std::string link = testing::TempDir() + "older_glibc_" + std::to_string(getpid());
  ASSERT_EQ(symlink("/dev/null", link.c_str()), 0);
  struct stat target;
  struct stat itself;
  EXPECT_EQ(stat(link.c_str(), &target), 0);
  EXPECT_EQ(lstat(link.c_str(), &itself), 0);
  EXPECT_TRUE(S_ISCHR(target.st_mode));
  EXPECT_TRUE(S_ISLNK(itself.st_mode));
  unlink(link.c_str());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(fstat(ends[0], &target), 0);
  EXPECT_TRUE(S_ISFIFO(target.st_mode));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(fstat(ends[0], &target), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(stat(link.c_str(), &target), -1);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace covey
