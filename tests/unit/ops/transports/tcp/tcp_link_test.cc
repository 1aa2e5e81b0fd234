// The contract of a Link over TCP: what arrives, in which order, and how the end of a peer is told.
// Method: ranks of one thread on this machine, in the clear and encrypted; a rank that is killed is
// a process of its own.
#include "ops/transports/tcp/tcp_link.h"

#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "core/transport/mirrored.h"
#include "tests/unit/ops/transports/tcp/job.h"

namespace covey {
namespace {

class TcpLinkTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Security, TcpLinkTest, ::testing::Values("auth", "tls"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(TcpLinkTest, MessagesArriveInOrder) {
  Job job(2, GetParam());
  job.OpenAll();
  const size_t lengths[] = {0, 1, 23, 24, 16384, 16385, 100000, 5000000, 3, 0};
  for (int round = 0; round < 3; ++round)
    for (size_t length : lengths) {
      job.Send(0, 1, Pattern(length, round));
      job.Send(1, 0, Pattern(length, round + 1));
    }
  job.Until([&] { return job.mail(0).size() == 30 && job.mail(1).size() == 30; });
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(job.mail(1)[i].from, Rank{0});
    EXPECT_TRUE(job.mail(1)[i].bytes == Pattern(lengths[i % 10], i / 10)) << i;
    EXPECT_TRUE(job.mail(0)[i].bytes == Pattern(lengths[i % 10], i / 10 + 1)) << i;
  }
}

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

TEST_P(TcpLinkTest, AMessageComesAfterThePutsBeforeIt) {
  Job job(2, GetParam());
  job.OpenAll();
  Bytes memory(size_t{8} << 20);
  job.link(1).Land(Rank{0}, memory);
  std::vector<std::pair<size_t, Bytes>> puts;
  size_t offset = 3;
  for (int i = 0; i < 20; ++i) {
    const size_t length = i % 4 == 0 ? 900000 + i : 7000 * i;
    puts.emplace_back(offset, Pattern(length, i));
    ASSERT_TRUE(job.link(0).Put(Rank{1}, offset, puts.back().second));
    job.Send(0, 1, Pattern(4, i));
    offset += length + 1;
  }
  size_t seen = 0;
  job.Until([&] {
    for (; seen < job.mail(1).size(); ++seen) {
      const auto& [at, data] = puts[seen];
      EXPECT_EQ(std::memcmp(memory.data() + at, data.data(), data.size()), 0) << seen;
    }
    return seen == puts.size();
  });
  EXPECT_EQ(memory[puts[1].first - 1], std::byte{0});
  EXPECT_EQ(memory[offset - 1], std::byte{0});
}

TEST_P(TcpLinkTest, LargePutsGoBothWaysAtOnce) {
  Job job(2, GetParam());
  job.OpenAll();
  const Bytes data[2] = {Pattern(size_t{20} << 20, 1), Pattern(size_t{20} << 20, 2)};
  Bytes memory[2] = {Bytes(data[0].size()), Bytes(data[0].size())};
  for (int r = 0; r < 2; ++r) {
    job.link(r).Land(Rank{1 - r}, memory[r]);
    ASSERT_TRUE(job.link(r).Put(Rank{1 - r}, 0, data[r]));
    ASSERT_TRUE(job.link(r).Send(Rank{1 - r}, Pattern(1, r)));
  }
  job.Until([&] { return job.mail(0).size() == 1 && job.mail(1).size() == 1; });
  EXPECT_TRUE(memory[0] == data[1]);
  EXPECT_TRUE(memory[1] == data[0]);
  job.Until([&] { return job.link(0).Flushed() && job.link(1).Flushed(); });
}

// More connections than are looked at one by one.
TEST_P(TcpLinkTest, AllPairsAreReached) {
  constexpr int kSize = 8;
  Job job(kSize, GetParam());
  job.OpenAll();
  for (int i = 0; i < 10; ++i)
    for (int from = 0; from < kSize; ++from)
      for (int to = 0; to < kSize; ++to)
        if (from != to) job.Send(from, to, Pattern(i * 3000, from * kSize + to));
  job.Until([&] {
    for (int r = 0; r < kSize; ++r)
      if (job.mail(r).size() < 10 * (kSize - 1)) return false;
    return true;
  });
  for (int r = 0; r < kSize; ++r) {
    int next[kSize] = {};
    for (const Job::Message& message : job.mail(r)) {
      const int from = ToInt(message.from);
      EXPECT_TRUE(message.bytes == Pattern(next[from]++ * 3000, from * kSize + r));
    }
    EXPECT_TRUE(job.losses(r).empty());
  }
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

TEST_P(TcpLinkTest, TheLastWordsArriveBeforeTheEnd) {
  Job job(2, GetParam());
  job.OpenAll();
  job.Send(1, 0, Pattern(1, 1));  // lies unread at rank 0 while it closes
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(2000000, 2)));
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(7, 3)));
  job.Until([&] { return job.link(0).Flushed(); });
  job.Close(0);
  job.Until([&] { return !job.losses(1).empty(); });
  ASSERT_EQ(job.mail(1).size(), 2u);
  EXPECT_TRUE(job.mail(1)[1].bytes == Pattern(7, 3));
  EXPECT_EQ(job.losses(1)[0].rank, Rank{0});
  EXPECT_EQ(job.losses(1)[0].how.find("has died, or its host has (connection"), 0u);
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

TEST_P(TcpLinkTest, WhatIsDroppedIsNotTouched) {
  Job job(3, GetParam());
  job.OpenAll();
  job.Send(0, 1, Pattern(5, 1));
  job.Until([&] { return job.mail(1).size() == 1; });
  Bytes memory(size_t{30} << 20);
  job.link(1).Land(Rank{0}, memory);
  const Bytes data = Pattern(memory.size(), 7);
  ASSERT_TRUE(job.link(0).Put(Rank{1}, 0, data));
  ASSERT_TRUE(job.link(0).Send(Rank{1}, Pattern(1, 1)));
  EXPECT_FALSE(job.link(0).Flushed());
  job.link(0).Drop(Rank{1});
  EXPECT_TRUE(job.link(0).Flushed());
  job.Until([&] { return !job.losses(1).empty(); });
  EXPECT_EQ(memory.back(), std::byte{0});
  EXPECT_EQ(job.mail(1).size(), 1u);
  EXPECT_TRUE(job.losses(0).empty());
  job.link(1).Send(Rank{0}, Pattern(1, 1));  // goes nowhere
  job.Send(2, 0, Pattern(1, 1));
  job.Until([&] { return job.mail(0).size() == 1; });
}

TEST_P(TcpLinkTest, AKilledPeerIsLost) {
  Job job(2, GetParam());
  const pid_t child = fork();
  if (child == 0) {
    job.Open(1);
    job.Send(1, 0, Pattern(100, 1));
    job.Until([] { return false; });
    _exit(1);
  }
  job.Close(1);
  job.Open(0);
  job.Until([&] { return job.mail(0).size() == 1; });
  kill(child, SIGKILL);
  job.Until([&] { return !job.losses(0).empty(); });
  EXPECT_EQ(job.losses(0)[0].rank, Rank{1});
  EXPECT_EQ(job.losses(0)[0].how.find("has died, or its host has (connection"), 0u);
  waitpid(child, nullptr, 0);
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

// The transport of ranks that share no memory, over this link.
TEST_P(TcpLinkTest, CarriesMirrors) {
  constexpr uint64_t kArena = uint64_t{8} << 20;
  Job job(2, GetParam());
  job.OpenAll();
  std::unique_ptr<Transport> ranks[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&job, &ranks, r] {
      const Mirrored::Options options{.arena_bytes = kArena, .start_timeout = kHardLimit};
      EXPECT_TRUE(Mirrored::Open(options, job.Take(r), &ranks[r]).ok());
    });
  for (std::thread& thread : threads) thread.join();
  const Rank to[] = {Rank{1}};
  const Bytes data = Pattern(3000000, 5);
  const uint64_t flag = ranks[0]->AllocShared(sizeof(uint64_t));
  auto* word = reinterpret_cast<uint64_t*>(ranks[0]->Base(Rank{0}) + flag);
  const uint64_t offset = ranks[0]->AllocShared(data.size());
  std::memcpy(ranks[0]->Base(Rank{0}) + offset, data.data(), data.size());
  ranks[0]->Push(to, ranks[0]->Base(Rank{0}) + offset, data.size());
  ranks[0]->StoreRelease(word, 17);
  ranks[0]->Wake(to);
  const auto* seen = reinterpret_cast<uint64_t*>(ranks[1]->Base(Rank{0}) + flag);
  const Time limit = MonotonicNow() + kHardLimit;
  Rank from = kNoRank;
  Bytes letter;
  while (ranks[1]->LoadAcquire(seen) != 17 && MonotonicNow() < limit)
    for (auto& rank : ranks) rank->TryReceive(&from, &letter);
  EXPECT_EQ(std::memcmp(ranks[1]->Base(Rank{0}) + offset, data.data(), data.size()), 0);
  ranks[0].reset();
  while (ranks[1]->PollPeers().empty() && MonotonicNow() < limit)
    ranks[1]->TryReceive(&from, &letter);
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
