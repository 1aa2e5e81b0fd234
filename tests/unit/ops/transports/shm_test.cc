// Goal: mailboxes of the shared memory hold what was sent, whole and in order, whatever its length
// and however full they are; a process that has ended is named, and what bears its number later is
// not read in its place.
// Method: two ranks of one process, one of them a thread that receives all the while; a real
// process that is killed, and another that the kernel is asked to give its number.
#include "ops/transports/shm.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr ShmJob::Patience kAnHour{.timeout_ns = 3600 * kSecond};
constexpr uint64_t kSeed = 20261125;

class ShmTest : public testing::Test {
 protected:
  void SetUp() override { Make(2); }
  void TearDown() override { close(fd_); }

  void Make(int32_t size) {
    if (fd_ >= 0) close(fd_);
    size_ = size;
    ASSERT_TRUE(ShmJob::Create(size, 1 << 20, &fd_).ok());
  }

  std::unique_ptr<ShmTransport> Join(int32_t rank, bool reads_peers = false) const {
    std::unique_ptr<ShmTransport> transport;
    const Status joined =
        ShmTransport::Open(fd_, {Rank{rank}, size_, reads_peers}, kAnHour, &transport);
    EXPECT_TRUE(joined.ok()) << joined.message();
    return transport;
  }
  // All ranks, in this process.
  void JoinAll() {
    std::vector<std::thread> others;
    for (int32_t r = 1; r < size_; ++r)
      others.emplace_back([this, r] { ranks_[static_cast<size_t>(r)] = Join(r); });
    ranks_[0] = Join(0);
    for (std::thread& other : others) other.join();
  }

  int fd_ = -1;
  int32_t size_ = 0;
  std::array<std::unique_ptr<ShmTransport>, 3> ranks_;
};

Bytes MessageOf(uint64_t number, size_t length_bytes) {
  Rng rng(kSeed + number);
  Bytes message(length_bytes);
  for (std::byte& byte : message) byte = static_cast<std::byte>(rng.Below(256));
  return message;
}

// As the slow and obvious would: a list of what was sent.
TEST_F(ShmTest, AFullMailboxTakesNothingMoreAndLosesNothing) {
  JoinAll();
  Rng rng(kSeed);
  std::deque<Bytes> sent;
  uint64_t number = 0;
  bool was_full = false;
  for (int round = 0; round < 300; ++round) {
    for (bool fits = true; fits && rng.Percent(90);) {
      Bytes message = MessageOf(++number, rng.Below(60000));
      // In parts, which may be empty, as in one.
      const std::span<const std::byte> all = message;
      const size_t cut = rng.Below(message.size() + 1);
      const std::span<const std::byte> parts[] = {all.first(cut), {}, all.subspan(cut)};
      fits = rng.Percent(50) ? ranks_[0]->TrySend(Rank{1}, message)
                             : ranks_[0]->TrySendParts(Rank{1}, parts);
      was_full |= !fits;
      if (fits) sent.push_back(std::move(message));
    }
    for (uint64_t takes = rng.Below(6); takes > 0 && !sent.empty(); --takes) {
      Rank from{};
      Bytes message;
      ASSERT_TRUE(ranks_[1]->TryReceive(&from, &message));
      EXPECT_EQ(from, Rank{0});
      ASSERT_TRUE(message == sent.front()) << "seed " << kSeed << ", round " << round;
      sent.pop_front();
    }
  }
  EXPECT_TRUE(was_full);
}

TEST_F(ShmTest, WhoReceivesMeanwhileSeesWholeMessages) {
  JoinAll();
  constexpr uint64_t kMessages = 3000;
  std::thread receiver([&] {
    for (uint64_t number = 0; number < kMessages;) {
      Rank from{};
      Bytes message;
      if (!ranks_[1]->TryReceive(&from, &message)) continue;
      const Bytes expected = MessageOf(number, 1000 + number % 3000);
      ASSERT_TRUE(message == expected) << "message " << number;
      ++number;
    }
  });
  for (uint64_t number = 0; number < kMessages; ++number) {
    const Bytes message = MessageOf(number, 1000 + number % 3000);
    while (!ranks_[0]->TrySend(Rank{1}, message)) sched_yield();
  }
  receiver.join();
}

// A process that does what `body` does and then stays; negative: the kernel starts none. `pid`: the
// number that it is to have; 0: any.
pid_t Start(pid_t pid, const std::function<void()>& body) {
  clone_args how{};
  how.exit_signal = SIGCHLD;
  how.set_tid = reinterpret_cast<uint64_t>(&pid);
  how.set_tid_size = 1;
  const pid_t parent = getpid();
  // Emulators do without clone3.
  const auto child = pid == 0 ? fork() : static_cast<pid_t>(syscall(SYS_clone3, &how, sizeof(how)));
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (static_cast<pid_t>(syscall(SYS_getppid)) != parent) _exit(1);
  body();
  for (;;) pause();
}

void End(pid_t pid) {
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST_F(ShmTest, WhoHasEndedIsNamed) {
  const pid_t victim = Start(0, [this] {
    const std::unique_ptr<ShmTransport> transport = Join(1);
    for (;;) pause();
  });
  ASSERT_GT(victim, 0) << "no process could be started";
  ranks_[0] = Join(0);
  EXPECT_TRUE(ranks_[0]->PollPeers().empty());
  End(victim);
  const std::vector<PeerLoss> losses = ranks_[0]->PollPeers();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].rank, Rank{1});
  EXPECT_NE(losses[0].how.find("has died"), std::string::npos) << losses[0].how;
}

TEST_F(ShmTest, OfTwoThatHaveLeftTheFirstIsNamedFirst) {
  Make(3);
  JoinAll();
  ranks_[2].reset();
  ranks_[1].reset();
  const std::vector<PeerLoss> losses = ranks_[0]->PollPeers();
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0].rank, Rank{2}) << "it may be why the other one has left";
  EXPECT_EQ(losses[1].rank, Rank{1});
  EXPECT_TRUE(ranks_[0]->PollPeers().empty());
}

TEST_F(ShmTest, WhoBearsItsNumberLaterIsNotRead) {
  uint64_t secret = 7;  // the same address in all of them
  const pid_t victim = Start(0, [this] {
    const std::unique_ptr<ShmTransport> transport = Join(1, true);
    for (;;) pause();
  });
  ASSERT_GT(victim, 0) << "no process could be started";
  ranks_[0] = Join(0, true);
  if (!ranks_[0]->CanReadPeers()) {
    End(victim);
    GTEST_SKIP() << "this system lets no process read another";
  }
  uint64_t value = 0;
  const auto read = [&] {
    return ranks_[0]->ReadPeer(Rank{1}, reinterpret_cast<uint64_t>(&secret),
                               reinterpret_cast<std::byte*>(&value), sizeof(value));
  };
  EXPECT_EQ(read(), 0);
  EXPECT_EQ(value, 7u);
  End(victim);
  EXPECT_NE(read(), 0) << "there is no such process";
  const pid_t stranger = Start(victim, [] {});
  if (stranger < 0) GTEST_SKIP() << "this system gives no process a number that was asked for";
  EXPECT_NE(read(), 0) << "it has read a stranger";
  End(stranger);
}

}  // namespace
}  // namespace covey
