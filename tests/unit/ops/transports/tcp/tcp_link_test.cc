// A Link over TCP keeps the contract of links (link_cases.h), in the clear and encrypted; and what
// is TCP's own: leases, dials, bounds.
#include "ops/transports/tcp/tcp_link.h"

#include <filesystem>

#include "tests/unit/ops/transports/link_cases.h"

namespace covey {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, LinkTest,
                         ::testing::Values(Engine{"auth", nullptr, 1}, Engine{"tls", nullptr, 1},
                                           Engine{"auth", nullptr, 4}, Engine{"tls", nullptr, 4}),
                         [](const auto& of) {
                           return of.param.security + std::to_string(of.param.streams);
                         });

// From the second one on these go by lanes, where there are any.
TEST_P(LinkTest, EachOfManyLargePutsIsThereWithItsMessage) {
  constexpr size_t kLength = 1500001;
  constexpr int kPuts = 24;
  Job job = Make(2);
  job.OpenAll();
  Bytes memory[2] = {Bytes(2 * kLength), Bytes(2 * kLength)};
  std::vector<Bytes> data;
  for (int i = 0; i < kPuts; ++i) data.push_back(Pattern(kLength - 16384 * i, i));
  for (int r = 0; r < 2; ++r) job.link(r).Land(Rank{1 - r}, memory[r]);
  // As a transport does: a place is used again once the peer has answered.
  for (int i = 0; i < kPuts; ++i) {
    for (int r = 0; r < 2; ++r) {
      job.Put(r, 1 - r, i % 2 * kLength, data[i]);
      job.Send(r, 1 - r, Pattern(1, i));
    }
    const auto count = static_cast<size_t>(i) + 1;
    job.Until([&] { return job.mail(0).size() == count && job.mail(1).size() == count; });
    for (const Bytes& landed : memory)
      EXPECT_EQ(std::memcmp(landed.data() + i % 2 * kLength, data[i].data(), data[i].size()), 0);
  }
  job.Until([&] { return job.link(0).Flushed() && job.link(1).Flushed(); });
}

TEST_P(LinkTest, AKilledPeerAmidLargePutsIsLost) {
  Job job = Make(2);
  const Bytes data = Pattern(1000000, 1);
  const pid_t child = fork();
  if (child == 0) {
    job.Open(1);
    for (;;) {
      job.Put(1, 0, 0, data);
      job.Send(1, 0, Pattern(1, 1));
    }
  }
  job.Close(1);
  job.Open(0);
  Bytes memory(data.size());
  job.link(0).Land(Rank{1}, memory);
  job.Until([&] { return job.mail(0).size() >= 20; });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  job.Until([&] { return !job.losses(0).empty(); });
  EXPECT_EQ(job.losses(0)[0].how.find("has died, or its host has ("), 0u);
  const size_t received = job.mail(0).size();
  job.Pump(0);
  EXPECT_EQ(job.mail(0).size(), received);
}

int Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST_P(LinkTest, ThreadsEndWithTheLink) {
  const int before = Threads();
  const Bytes data = Pattern(1000000, 1);
  Bytes memory(data.size());
  {
    Job job = Make(2);
    job.OpenAll();
    job.link(1).Land(Rank{0}, memory);
    const int wanted = GetParam().streams == 1 ? 0 : 2 * GetParam().streams;
    for (int i = 0; i < 2; ++i) {
      job.Put(0, 1, 0, data);
      job.Send(0, 1, Pattern(1, 1));
      job.Until([&] { return job.mail(1).size() == static_cast<size_t>(i) + 1; });
    }
    EXPECT_EQ(Threads() - before, wanted);
  }
  // The kernel forgets them a moment after they have been joined.
  const Time limit = MonotonicNow() + kHardLimit;
  while (Threads() != before && MonotonicNow() < limit) {
  }
  EXPECT_EQ(Threads(), before);
}

class TcpLinkTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Security, TcpLinkTest, ::testing::Values("auth", "tls"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(TcpLinkTest, IPv6) {
  uint16_t port = 0;
  const int trial = Listen(&port, AF_INET6);
  if (trial < 0) GTEST_SKIP() << "this machine has no IPv6";
  close(trial);
  Job job(2, GetParam(), 10 * kSecond, AF_INET6);
  job.OpenAll();
  job.Send(1, 0, Pattern(10, 1));
  job.Until([&] { return job.mail(0).size() == 1; });
}

TEST_P(TcpLinkTest, ASenderHasNoRoomOnceMuchWaits) {
  Job job(2, GetParam());
  job.Open(0);  // rank 1 has not begun
  int sent = 0;
  while (job.link(0).Send(Rank{1}, Pattern(100000, sent))) ++sent;
  EXPECT_LT(sent, 100);
  EXPECT_FALSE(job.link(0).Flushed());
  job.Open(1);
  job.Send(0, 1, Pattern(100000, sent));
  job.Until([&] { return job.mail(1).size() == static_cast<size_t>(sent) + 1; });
  for (int i = 0; i <= sent; ++i) EXPECT_TRUE(job.mail(1)[i].bytes == Pattern(100000, i)) << i;
}

// What it sent may still be read when sending to it fails.
TEST_P(TcpLinkTest, TheLastWordsAreReadAfterAFailedSend) {
  Job job(2, GetParam());
  job.OpenAll();
  job.Send(0, 1, Pattern(5, 1));
  job.Until([&] { return job.mail(1).size() == 1; });
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(9, 2)));
  while (!job.link(0).Flushed()) job.Pump(0);
  job.Close(0);
  for (int i = 0; i < 100; ++i) job.link(1).Send(Rank{0}, Pattern(100000, i));
  job.Until([&] { return !job.losses(1).empty(); });
  ASSERT_EQ(job.mail(1).size(), 2u);
  EXPECT_TRUE(job.link(1).Send(Rank{0}, Pattern(1, 1))) << "to a lost peer everything may go";
  EXPECT_TRUE(job.link(1).Flushed());
  EXPECT_EQ(job.losses(1).size(), 1u);
}

TEST_P(TcpLinkTest, APeerThatNobodyListensForIsLostAfterALease) {
  Job job(2, GetParam(), 200 * kMillisecond);
  uint16_t port = 0;
  close(Listen(&port));
  job.set_port(1, port);
  job.Open(0);
  job.Send(0, 1, Pattern(1, 1));
  job.Until([&] { return !job.losses(0).empty(); });
  EXPECT_EQ(job.losses(0)[0].how,
            "could not be reached for 200 ms (COVEY_LEASE): Connection refused");
  EXPECT_TRUE(job.link(0).Flushed());
}

TEST_P(TcpLinkTest, APeerMayBeginLate) {
  Job job(2, GetParam(), 100 * kMillisecond);
  job.Open(0);
  job.Send(0, 1, Pattern(1, 1));
  // It waits in the backlog for several leases.
  const Time late = MonotonicNow() + 400 * kMillisecond;
  while (MonotonicNow() < late) {
    pollfd waker{job.link(0).Descriptor(), POLLIN, 0};
    poll(&waker, 1, static_cast<int>((late - MonotonicNow()) / kMillisecond));
    job.Pump(0);
  }
  EXPECT_TRUE(job.losses(0).empty());
  job.Open(1);
  job.Until([&] { return job.mail(1).size() == 1; });
}

// A host whose process stands still, with all its buffers full, is within reach.
TEST_P(TcpLinkTest, AStoppedPeerIsNotLost) {
  Job job(2, GetParam(), 300 * kMillisecond);
  job.OpenAll();
  job.Send(0, 1, Pattern(1, 1));
  job.Until([&] { return job.mail(1).size() == 1; });
  Bytes memory(size_t{40} << 20);
  const Bytes data = Pattern(memory.size(), 1);
  job.link(1).Land(Rank{0}, memory);
  ASSERT_TRUE(job.link(0).Put(Rank{1}, 0, data));
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(2, 2)));
  const Time late = MonotonicNow() + 1500 * kMillisecond;
  while (MonotonicNow() < late) {
    pollfd waker{job.link(0).Descriptor(), POLLIN, 0};
    poll(&waker, 1, static_cast<int>((late - MonotonicNow()) / kMillisecond));
    job.Pump(0);
  }
  EXPECT_TRUE(job.losses(0).empty()) << job.losses(0)[0].how;
  job.Until([&] { return job.mail(1).size() == 2 || !job.losses(1).empty(); });
  EXPECT_TRUE(memory == data);
}

TEST(TcpLinkOpenTest, SaysWhatItWasNotGiven) {
  const auto said = [](covey_link_options options) {
    std::unique_ptr<PluginLink> link;
    return PluginLink::Open("tcp", covey_open_link, options, &link).message();
  };
  Job job(2, "tls");
  const std::string book = job.Book();
  EXPECT_NE(said({.rank = 0, .size = 2}).find("no book of ranks (COVEY_BOOK_FD)"),
            std::string::npos);
  EXPECT_NE(said({.rank = 0, .size = 3, .book = book.c_str()}).find("the book of ranks is of 2"),
            std::string::npos);
  EXPECT_NE(said({.rank = 0, .size = 2, .book = "covey"}).find("line 1 of the book"),
            std::string::npos);
  covey_link_options options{.rank = 0, .size = 2, .book = book.c_str(), .listener = -1};
  EXPECT_NE(said(options).find("COVEY_LISTEN_FD=-1 is no socket"), std::string::npos);
  options.listener = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_NE(said(options).find("does not listen"), std::string::npos);
  close(options.listener);
}

}  // namespace
}  // namespace covey
