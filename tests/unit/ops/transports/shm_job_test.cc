// Goal: a job's memory cannot be cut under the ranks that have mapped it, and carries a name by
// which it is recognised. Method: the descriptor, looked at as any process of the user could.
#include "ops/transports/shm_job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <memory>
#include <string>

#include "ops/transports/shm.h"

namespace {
int let_in = 0;  // times that this process has let others read its memory
}  // namespace

// In place of libc's: what it sets cannot be asked for.
extern "C" int prctl(int option, ...) noexcept {
  va_list rest;
  va_start(rest, option);
  const auto value = va_arg(rest, unsigned long);
  va_end(rest);
  if (option == PR_SET_PTRACER) ++let_in;
  return static_cast<int>(syscall(SYS_prctl, option, value, 0, 0, 0));
}

namespace covey {
namespace {

std::string TargetOf(int fd) {
  char target[256];
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof(target));
  return {target, length < 0 ? 0 : static_cast<size_t>(length)};
}

TEST(ShmJobTest, TheLengthNeverChanges) {
  int fd = -1;
  ASSERT_TRUE(ShmJob::Create(2, 1 << 20, &fd).ok());
  struct stat info {};
  ASSERT_EQ(fstat(fd, &info), 0);
  for (const off_t length : {off_t{0}, info.st_size - 1, info.st_size + 1}) {
    EXPECT_EQ(ftruncate(fd, length), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);  // nor may anybody forbid writing
  close(fd);
}

TEST(ShmJobTest, MemoryThatCouldBeCutIsNoJob) {
  int fd = -1;
  ASSERT_TRUE(ShmJob::Create(1, 1 << 20, &fd).ok());
  struct stat info {};
  ASSERT_EQ(fstat(fd, &info), 0);
  char page[kPageBytes];
  ASSERT_EQ(pread(fd, page, sizeof(page), 0), static_cast<ssize_t>(sizeof(page)));
  const int copy = memfd_create("covey", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(copy, info.st_size), 0);
  ASSERT_EQ(pwrite(copy, page, sizeof(page), 0), static_cast<ssize_t>(sizeof(page)));
  ShmJob job;
  EXPECT_FALSE(ShmJob::Open(copy, {Rank{0}, 1}, &job).ok());
  ASSERT_EQ(fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  ASSERT_TRUE(ShmJob::Open(copy, {Rank{0}, 1}, &job).ok());
  job.arena->Unref();
  close(copy);
  close(fd);
}

TEST(ShmJobTest, EachJobHasANameOfItsOwn) {
  int fds[2] = {-1, -1};
  for (int& fd : fds) ASSERT_TRUE(ShmJob::Create(1, 1 << 20, &fd).ok());
  EXPECT_NE(TargetOf(fds[0]), TargetOf(fds[1]));
  const std::string before = "/memfd:covey-", after = " (deleted)";
  EXPECT_EQ(TargetOf(fds[0]).rfind(before, 0), 0u);
  EXPECT_EQ(TargetOf(fds[0]).size(), before.size() + 32 + after.size());
  for (const int fd : fds) close(fd);
}

// Whether there is the call by which peers are read; qemu-user has none.
bool ReadsItself() {
  int value = 7, copy = 0;
  const iovec local{&copy, sizeof(copy)}, remote{&value, sizeof(value)};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof(copy);
}

TEST(ShmJobTest, NobodyIsLetReadWithoutNeed) {
  for (const bool reads_peers : {false, true}) {
    int fd = -1;
    ASSERT_TRUE(ShmJob::Create(1, 1 << 20, &fd).ok());
    std::unique_ptr<ShmTransport> transport;
    ASSERT_TRUE(
        ShmTransport::Open(fd, {Rank{0}, 1, reads_peers}, {.timeout_ns = kSecond}, &transport)
            .ok());
    EXPECT_EQ(transport->CanReadPeers(), reads_peers && ReadsItself());
    EXPECT_EQ(let_in, reads_peers ? 1 : 0);
    close(fd);
  }
  if (!ReadsItself()) GTEST_SKIP() << "this system lets no process read itself";
}

}  // namespace
}  // namespace covey
