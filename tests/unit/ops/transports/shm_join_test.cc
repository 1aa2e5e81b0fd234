// Goal: init never waits for a rank that will not come: a rank that had announced itself and then
// dies or gives up is noticed at once and named, one that never came is named at the end.
// Method: real processes over one job. They are allowed an hour to wait, so a test that ends at all
// ended because the loss was seen; nothing is timed.
#include "ops/transports/shm.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>

namespace covey {
namespace {

constexpr ShmJob::Patience kAnHour{.timeout_ns = 3600 * kSecond};
constexpr ShmJob::Patience kNone{.timeout_ns = kMillisecond};

// A job of `size` ranks, seen from outside of it.
class ShmJoinTest : public testing::Test {
 protected:
  void Make(int32_t size) {
    size_ = size;
    ASSERT_TRUE(ShmJob::Create(size, 1 << 20, &fd_).ok());
    ASSERT_TRUE(ShmJob::Open(fd_, {Rank{0}, size}, &seen_).ok());
  }
  ~ShmJoinTest() override {
    for (const pid_t pid : children_) End(pid);
    if (seen_.arena != nullptr) seen_.arena->Unref();
    close(fd_);
  }

  Status Join(int32_t rank, const ShmJob::Patience& patience,
              std::unique_ptr<ShmTransport>* transport) {
    return ShmTransport::Open(fd_, {Rank{rank}, size_}, patience, transport);
  }

  // A process that runs `body` and then stays.
  pid_t Start(const std::function<void()>& body) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      body();
      for (;;) pause();
    }
    children_.push_back(pid);
    return pid;
  }
  pid_t StartRank(int32_t rank) {
    return Start([this, rank] {
      std::unique_ptr<ShmTransport> transport;
      if (!Join(rank, kAnHour, &transport).ok()) _exit(1);
      for (;;) pause();
    });
  }
  void AwaitShown(int32_t rank, Presence presence, uint32_t incarnation = 1) {
    const uint64_t wanted = uint64_t{incarnation} << 32 | static_cast<uint32_t>(presence);
    while (seen_.Page(Rank{rank})->presence.load() != wanted) sched_yield();
  }
  void End(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    std::erase(children_, pid);
  }

  int32_t size_ = 0;
  int fd_ = -1;
  ShmJob seen_;
  std::vector<pid_t> children_;
};

TEST_F(ShmJoinTest, NamesARankThatDiesWhileTheOthersWait) {
  Make(3);  // rank 2 never comes
  const pid_t victim = StartRank(1);
  AwaitShown(1, Presence::kJoined);
  Status status;
  std::unique_ptr<ShmTransport> transport;
  std::thread waiting([&] { status = Join(0, kAnHour, &transport); });
  AwaitShown(0, Presence::kJoined);
  End(victim);
  waiting.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.peer(), Rank{1});
  EXPECT_NE(status.message().find("rank 1 has died (process " + std::to_string(victim)),
            std::string::npos)
      << status.message();
}

TEST_F(ShmJoinTest, NamesARankThatDiedBeforeThisOneCame) {
  Make(2);
  const pid_t victim = StartRank(1);
  AwaitShown(1, Presence::kJoined);
  End(victim);  // waited for: not even a zombie is left
  std::unique_ptr<ShmTransport> transport;
  const Status status = Join(0, kAnHour, &transport);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.peer(), Rank{1}) << status.message();
}

TEST_F(ShmJoinTest, NamesARankThatIsAZombie) {
  Make(2);
  const pid_t victim = StartRank(1);
  AwaitShown(1, Presence::kJoined);
  kill(victim, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(victim), &info, WEXITED | WNOWAIT), 0);
  std::unique_ptr<ShmTransport> transport;
  EXPECT_EQ(Join(0, kAnHour, &transport).peer(), Rank{1});
}

TEST_F(ShmJoinTest, NamesARankThatGaveUp) {
  Make(3);
  Start([this] {
    std::unique_ptr<ShmTransport> transport;
    (void)Join(1, kNone, &transport);
  });
  std::unique_ptr<ShmTransport> transport;
  const Status status = Join(0, kAnHour, &transport);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.peer(), Rank{1});
  EXPECT_NE(status.message().find("rank 1 gave up"), std::string::npos) << status.message();
}

TEST_F(ShmJoinTest, NamesThoseThatNeverCame) {
  Make(4);
  StartRank(2);
  AwaitShown(2, Presence::kJoined);
  std::unique_ptr<ShmTransport> transport;
  const Status status = Join(0, kNone, &transport);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_NE(status.message().find("ranks 1, 3 did not call init within 0.001 s"), std::string::npos)
      << status.message();
}

TEST_F(ShmJoinTest, TellsWhoIsMissingWhileItWaits) {
  Make(3);
  const pid_t victim = StartRank(1);
  AwaitShown(1, Presence::kJoined);
  Log log(LogLevel::kWarn, Rank{0});
  ShmJob::Patience patience{.timeout_ns = kMillisecond, .warn_after_ns = 0, .log = &log};
  testing::internal::CaptureStderr();
  std::unique_ptr<ShmTransport> transport;
  EXPECT_FALSE(Join(0, patience, &transport).ok());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("for rank 2 to call init"),
            std::string::npos);
  End(victim);
}

TEST_F(ShmJoinTest, JoinsAfterEverybodyGaveUp) {
  Make(2);
  std::unique_ptr<ShmTransport> transport;
  EXPECT_EQ(Join(0, kNone, &transport).code(), StatusCode::kTimeout);
  Start([this] {
    std::unique_ptr<ShmTransport> first;
    std::unique_ptr<ShmTransport> second;
    const bool told = Join(1, kAnHour, &first).code() == StatusCode::kAborted;
    if (!told || !Join(1, kAnHour, &second).ok()) _exit(1);
    for (;;) pause();
  });
  const Status status = Join(0, kAnHour, &transport);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(ShmJoinTest, ARankThatLeavesAtOnceIsNotMissed) {
  Make(2);
  const pid_t other = Start([this] {
    std::unique_ptr<ShmTransport> transport;
    if (!Join(1, kAnHour, &transport).ok()) _exit(1);
    transport.reset();
    _exit(0);
  });
  std::unique_ptr<ShmTransport> transport;
  const Status status = Join(0, kAnHour, &transport);
  ASSERT_TRUE(status.ok()) << status.message();
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT), 0);
  const std::vector<PeerLoss> losses = transport->PollPeers();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].rank, Rank{1});
  EXPECT_NE(losses[0].how.find("has left"), std::string::npos) << losses[0].how;
}

TEST_F(ShmJoinTest, NamesARankThatDiedWithoutLeavingTheEarlierRuntime) {
  Make(2);
  const pid_t victim = StartRank(1);
  std::unique_ptr<ShmTransport> transport;
  ASSERT_TRUE(Join(0, kAnHour, &transport).ok());
  transport.reset();
  End(victim);
  const Status status = Join(0, kAnHour, &transport);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(status.peer(), Rank{1}) << status.message();
}

}  // namespace
}  // namespace covey
